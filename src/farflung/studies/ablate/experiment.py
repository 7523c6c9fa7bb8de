"""The contribution of each credit, optimiser and default: the experiment behind `farflung ablate`."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from farflung.algorithms.pgpse import PGPSE
from farflung.bounds.ceilings import Ceiling, ceiling
from farflung.config import CREDITS, PRESETS, Ablate, Explore
from farflung.policies import TabularSoftmax, softmax_team
from farflung.policies.rollout import play
from farflung.runs import interrupts
from farflung.runs.destinations import Destination, claimed, open_collection
from farflung.runs.run import Run, final_values
from farflung.studies.suite import Elsewhere, SuiteStatus, compiling_threads, train_all
from farflung.worlds.named import make_tabular_world
from farflung.worlds.tabular import TabularMDP

LEARNING_RATES = {
    "sgd": (0.15, 1.5, 15.0),
    "adam": (0.05, 0.15, 0.5),
    "natural": (1.0, 3.0, 6.0),
    "trust-region": (0.001, 0.003, 0.01),
}
"""The candidates for each optimiser; each credit gets the best of them."""
STAGES = ("start", "halfway", "end")
COMBINED = "causal, 4 combinations"
DEFAULTS = "defaults"
PARTS: dict[str, dict[str, Any]] = {
    "no bonus on the policies' entropy": {"entropy_bonus": 0.0},
    "first logits from (-1, 1)": {"init_scale": 1.0},
    "stationary policies": {"policy": "stationary"},
    "one step per batch": {"steps_per_batch": 1},
    "four steps per batch": {"steps_per_batch": 4},
    "four combinations": {"combinations": 4},
}
"""Variants of the defaults, by name: the settings that they change."""
BASELINES: dict[str, dict[str, Any]] = {"single": {"single": True}, "independent": {"independent": True}}
_LOG_EVERY = 2


class Setting(NamedTuple):
    """A world and a team size in which all variants are trained."""

    world: str
    agents: int

    def __str__(self) -> str:
        return f"{self.world}, m = {self.agents}"


class Pair(NamedTuple):
    """A credit and an optimiser."""

    credit: str
    optimizer: str


class Outcome(NamedTuple):
    """The result of a variant in one setting."""

    percentages: Float[np.ndarray, " seed"]
    """The final entropy in percent of the ceiling."""
    steps_to_paper: int | None
    """Environment steps of one team until the mean over seeds is at the final entropy of the paper's preset; None if never."""
    steps_to_95: int | None
    """Environment steps until 95% of the ceiling."""
    steps_to_99: int | None
    """Environment steps until 99% of the ceiling."""


@dataclass(frozen=True)
class Ablation:
    """The results of `farflung ablate`."""

    config: Ablate
    settings: tuple[Setting, ...]
    runs: Mapping[tuple[Setting, str], Run]
    """By setting and name of the variant."""
    rates: Mapping[Pair, float]
    """The learning rate with the highest final entropy, averaged over the settings."""
    ceilings: Mapping[Setting, Ceiling]
    variances: Mapping[tuple[Setting, str], Mapping[str, float]]
    """The variance of the gradient by setting and stage, then by credit, for teams of the defaults, averaged over seeds."""

    def outcome(self, setting: Setting, variant: str) -> Outcome:
        run, bound = self.runs[setting, variant], self.ceilings[setting]
        paper = final_values(self.runs[setting, "paper"].updates, self.runs[setting, "paper"].metrics)["entropy"].mean()
        final = final_values(run.updates, run.metrics)["entropy"]
        levels = (float(paper), 0.95 * bound.bound, 0.99 * bound.bound)
        return Outcome(np.asarray(bound.percentage(final)), *(steps_to(run, level) for level in levels))

    def best(self, pair: Pair) -> str:
        """The name of a pair's variant with the best learning rate."""
        return name_of(pair, self.rates[pair])

    @property
    def paper_steps(self) -> dict[Setting, int]:
        """The environment steps of one team with the paper's preset."""
        return {setting: int(self.runs[setting, "paper"].steps[-1]) for setting in self.settings}

    def times_fewer(self, setting: Setting, variant: str) -> float | None:
        """The steps of the paper's preset divided by the steps of a variant until the same entropy."""
        steps = self.outcome(setting, variant).steps_to_paper
        return None if steps is None else self.paper_steps[setting] / steps


def steps_to(run: Run, level: float) -> int | None:
    """The environment steps of one team until the mean entropy over the seeds reaches a level."""
    reached = run.metrics.entropy.mean(axis=0, dtype=np.float64) >= level
    return int(run.steps[np.argmax(reached)]) if reached.any() else None


def name_of(pair: Pair, rate: float) -> str:
    return f"{pair.credit}, {pair.optimizer} {rate:g}"


def objective_name(objective: str) -> str:
    """The name of the variant that maximises another objective than the entropy of states."""
    return f"objective {objective}"


def ablate(
    config: Ablate,
    out: str | Path | Destination,
    *,
    force: bool = False,
    on_progress: Callable[[SuiteStatus], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    elsewhere: Elsewhere | None = None,
) -> Ablation:
    """Trains all runs that are not yet in the folder `out`, saves each run there, and measures all of them.

    Args:
        force: delete the results in the folder if another version or other settings wrote them.
        on_note: called with a message about each unusable run in the folder; such a run is trained again.
        elsewhere: trains in other processes, such as those of a cluster.
    """
    report, note = on_progress or (lambda _: None), on_note or (lambda _: None)
    sizes = {name: getattr(config, name) for name in ("updates", "paper_updates", "seeds")}
    worlds = {name: make_tabular_world(name) for name in config.worlds}
    settings = tuple(Setting(world, agents) for world in worlds for agents in config.agents)
    runs: dict[tuple[Setting, str], Run] = {}
    ceilings: dict[Setting, Ceiling] = {}
    variances: dict[tuple[Setting, str], dict[str, float]] = {}
    with claimed(out) as place:
        open_collection(place, {"kind": "ablation", "farflung": version("farflung"), **sizes}, force=force)
        groups_of = {setting: _groups(config, setting) for setting in settings}
        folders_of = {setting: [_by_folder(setting, group) for group in groups] for setting, groups in groups_of.items()}
        if elsewhere is not None:
            elsewhere([group for folders in folders_of.values() for group in folders], place.folder)
        for number, setting in enumerate(settings):
            if number > 0:
                jax.clear_caches()  # the number of memory maps of a process is limited, and each compiled program takes some
            world, report_all = worlds[setting.world], partial(_report, report, number, len(settings))
            groups = groups_of[setting]
            with compiling_threads() as pool:
                found = dict(train_all(folders_of[setting], worlds, place.folder, pool, report_all, note))
            runs |= {(setting, name): found[folder_of(setting, name)] for group in groups for name in group}
            report_all(SuiteStatus(1, 1, f"{setting.world}, {setting.agents} agents: ceiling and variance of the gradient"))
            ceilings[setting] = ceiling(world, setting.agents)
            for stage in STAGES:
                interrupts.check()
                variances[setting, stage] = _variances(config, runs, world, setting, stage)
    return Ablation(config, settings, runs, _best_rates(config, settings, runs), ceilings, variances)


def _report(report: Callable[[SuiteStatus], None], number: int, num_settings: int, status: SuiteStatus) -> None:
    """Reports the progress of the whole, as if all settings took equally long."""
    share = number + status.steps / status.num_steps
    report(SuiteStatus(int(1000 * share), 1000 * num_settings, status.what))


def _groups(config: Ablate, setting: Setting) -> list[dict[str, Explore]]:
    """All trainings of a setting; those of one group differ only in numbers."""

    def variant(**changes: Any) -> Explore:
        own: dict[str, Any] = {"updates": config.updates, "log_every": _LOG_EVERY, "seeds": config.seed_values}
        return Explore(setting.world, agents=setting.agents, **(own | changes))

    by_pair = [
        {
            name_of(Pair(credit, optimizer), rate): variant(credit=credit, optimizer=optimizer, learning_rate=rate)
            for rate in LEARNING_RATES[optimizer]
        }
        for credit in config.credits
        for optimizer in config.optimizers
    ]
    numbers = [name for name, changes in PARTS.items() if changes.keys() <= {"entropy_bonus", "init_scale"}]
    others = {name: changes for name, changes in (PARTS | BASELINES).items() if name not in numbers}
    others |= {objective_name(each): {"objective": each} for each in config.objectives}
    halfway = variant(updates=max(1, config.updates // 2), bonus_decay=variant().bonus_decay)
    return [
        {"paper": variant(preset="paper", updates=config.paper_updates, log_every=None)},
        {DEFAULTS: variant(), **{name: variant(**PARTS[name]) for name in numbers}},
        *({name: variant(**changes)} for name, changes in others.items()),
        *by_pair,
        {"halfway": halfway},
    ]


def _by_folder(setting: Setting, group: Mapping[str, Explore]) -> dict[str, Explore]:
    return {folder_of(setting, name): config for name, config in group.items()}


def folder_of(setting: Setting, name: str) -> str:
    plain = "".join(letter if letter.isalnum() or letter == "." else "-" for letter in name.lower())
    return f"runs/{setting.world}-{setting.agents}/{plain}"


def _best_rates(config: Ablate, settings: tuple[Setting, ...], runs: Mapping[tuple[Setting, str], Run]) -> dict[Pair, float]:
    def mean_entropy(pair: Pair, rate: float) -> float:
        own = [runs[setting, name_of(pair, rate)] for setting in settings]
        return float(np.mean([final_values(run.updates, run.metrics)["normalized_entropy"].mean() for run in own]))

    pairs = [Pair(credit, optimizer) for credit in config.credits for optimizer in config.optimizers]
    return {pair: max(LEARNING_RATES[pair.optimizer], key=lambda rate: mean_entropy(pair, rate)) for pair in pairs}


def _variances(
    config: Ablate, runs: Mapping[tuple[Setting, str], Run], world: TabularMDP, setting: Setting, stage: str
) -> dict[str, float]:
    """The variance of each credit's gradient, for teams at one stage of training with the defaults."""
    trained = runs[setting, DEFAULTS if stage == "end" else "halfway"]
    plain = PGPSE(setting.agents, is_time_dependent=trained.policies.is_time_dependent)
    algorithms = {credit: dataclasses.replace(plain, credit=credit) for credit in CREDITS}
    algorithms[COMBINED] = dataclasses.replace(plain, credit="causal", num_combinations=4)
    total = np.zeros(len(algorithms))
    for seed in config.seed_values:
        team = trained.team(seed).policies
        if stage == "start":
            about = {"scale": PRESETS["farflung"]["init_scale"], "is_time_dependent": plain.is_time_dependent}
            team = softmax_team(jr.key(seed), world, setting.agents, **about)
        key = jr.key(10_000 + seed)
        total += np.asarray(gradient_variances(key, tuple(algorithms.values()), team, world, config.batches), np.float64)
    return dict(zip(algorithms, (total / config.seeds).tolist(), strict=True))


@partial(jax.jit, static_argnums=4)
def gradient_variances(
    key: PRNGKeyArray, algorithms: Sequence[PGPSE], team: TabularSoftmax, world: TabularMDP, num_batches: int
) -> Float[Array, " algorithm"]:
    r"""The trace of the covariance of each algorithm's gradient for one team, $\sum_j \mathrm{Var}(\hat g_j)$.

    All algorithms see the same batches and must agree in their sizes.
    """

    def gradients(key: Key[Array, ""]) -> list[Float[Array, "..."]]:
        batch = play(key, team, world, algorithms[0].batch_size, algorithms[0].num_trajectories)
        return [algorithm.gradient(world, team, batch).logits for algorithm in algorithms]

    found = jax.lax.map(gradients, jr.split(key, num_batches))
    return jnp.stack([jnp.sum(jnp.var(each, axis=0, ddof=1)) for each in found])
