"""Names and defaults that several configs share, and how the command line shows their options."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import tyro

PAPER_WORLDS = ("room-det", "room-stoc", "maze-det", "maze-stoc")
ROBOTS = ("ant", "half-cheetah", "hopper", "walker2d", "humanoid")
CONTINUOUS_WORLDS = (
    "point-empty",
    "point-gap",
    "point-four-rooms",
    "point-room",
    "point-maze",
    "mepol-grid",
    "mountain-car",
    "mountain-car-discrete",
    "pendulum",
    *ROBOTS,
)
BATCH_SIZE = 40
COMPILED_TWINS = {
    "MountainCar-v0": "mountain-car-discrete",
    "MountainCarContinuous-v0": "mountain-car",
    "Pendulum-v1": "pendulum",
    "Ant-v5": "ant",
}
"""Gymnasium environments that are compiled worlds too."""
SUITES = ("gymnax", "craftax", "navix", "xminigrid", "jumanji", "brax", "playground")
"""JAX suites whose environments are worlds, under names such as `gymnax:MountainCar-v0`."""
WORKER_LAUNCHERS = ("local", "ray")
"""Where the worker processes of slow environments run."""
PAPER_SEEDS = (0, 1, 2, 42, 133)
ALGORITHM, ACTOR_CRITIC, OBJECTIVE = "pgpse", "actor-critic", "state"
"""The training algorithm for tables, the one for networks, and the default objective (the entropy of states that the world
proposes)."""
ALGORITHMS = (ALGORITHM, "diayn", ACTOR_CRITIC)
OBJECTIVES = ("state", "own", "skills", "trajectory")
_TERM = re.compile(r"(?:(\d+(?:\.\d*)?)\*)?([a-z]+)")
CREDITS = ("total", "leave_one_out", "difference", "causal")
COMBINED_CREDITS = ("difference", "causal")
CEILING_METHODS = ("auto", "milp", "lp", "frank-wolfe")
PLANS = ("together", "in-turn")
METRICS = (
    "entropy",
    "normalized_entropy",
    "support",
    "mixture_entropy",
    "individual_entropy",
    "diversity",
    "policy_entropy",
    "particle_entropy",
    "trajectory_entropy",
    "objective",
    "percent_of_ceiling",
)
"""Scores by which runs can be compared: the recorded metrics and the percentage of the ceiling."""
ESTIMATORS = ("sum", "mean")
"""What an agent's gradient does with its trajectories: sum, as in the paper's code, or mean, as in its section 5."""
OFFLINE_METRICS = ("success", "score", "return")
"""Scores by which results of `farflung offline` can be compared."""
SCHEDULES = {"code": (0.15, 1.0), "text": (0.1, 0.999)}
"""The learning rate and its decay per update in the paper's released code, and in its text."""
LEARNING_RATES = {"sgd": 0.15, "adam": 0.15, "natural": 3.0, "trust-region": 0.003}
"""Default learning rate of each optimiser for tabular policies, and below for neural networks."""
NOISY_LEARNING_RATE = 0.03
"""Default learning rate of Adam for tables where states are numbered as they are met: each is visited rarely, and Adam's steps
are as large for rare, noisy gradients as for others."""
NEURAL_LEARNING_RATES = {"sgd": 0.1, "adam": 0.003}
ACTOR_CRITIC_LEARNING_RATES = {"sgd": 0.1, "adam": 0.002}
OPTIMIZERS, NEURAL_OPTIMIZERS = tuple(LEARNING_RATES), tuple(NEURAL_LEARNING_RATES)
PER_SEED = ("learning_rate", "decay", "init_scale", "entropy_bonus", "bonus_decay", "clip")
"""Settings that can have one number for all seeds, or one for each."""
LOGGERS = ("tensorboard", "csv", "wandb", "trackio")
TABLES = ("stationary", "time-dependent")
NETWORKS = ("neural", "shared-trunk", "conditioned")
POLICIES = ("auto", *TABLES, *NETWORKS)
STDS = ("free", "state")
STUDY_WORLDS = ("maze-stoc", "corridors", "point-four-rooms", "point-maze", "door-key")
"""Worlds of `farflung transfer-study`; corridors is a larger map."""
TRANSFERS = ("finetune", "guide", "offline", "scratch")
"""What `farflung transfer` can do with a team."""
TASKS = ("goals", "rewards")
"""What `farflung offline` can learn."""
METHODS = ("q-learning", "iql", "td3-bc", "bc")
DATA_FORMATS = ("minari", "minari-arrow", "npz", "parquet", "d3rlpy")
PRESETS: dict[str, dict[str, Any]] = {
    "farflung": {
        "updates": 1000,
        "credit": "causal",
        "optimizer": "adam",
        "policy": "auto",
        "init_scale": 0.01,
        "entropy_bonus": 0.5,
        "steps_per_batch": 2,
    },
    "paper": {
        "updates": 10_000,
        "credit": "total",
        "optimizer": "sgd",
        "policy": "stationary",
        "init_scale": 1.0,
        "entropy_bonus": 0.0,
        "steps_per_batch": 1,
    },
}
"""Default settings for tabular policies: ours, and the paper's."""
NEURAL_PRESETS: dict[str, dict[str, Any]] = {
    "farflung": PRESETS["farflung"] | {"updates": 500, "policy": "neural", "entropy_bonus": 0.1, "steps_per_batch": 5},
    "paper": PRESETS["paper"] | {"updates": 500, "policy": "neural", "optimizer": "adam"},
}
"""Default settings for networks that PGPSE trains; the paper trains none, so its preset only takes over its credit and
its single step."""
ACTOR_CRITIC_PRESET: dict[str, Any] = {
    "updates": 2000,
    "batch_size": 8,
    "entropy_bonus": 0.01,
    "bonus_decay": 1.0,
    "steps_per_batch": 16,
}
"""Where the actor-critic's defaults differ from those."""
COMBINATIONS, WARM_UP = 4, 0.1
"""The actor-critic's default regroupings of a batch, and its default share of updates in which own networks learn as one."""
ONLY_FOR_PGPSE = ("credit", "over_trajectories")
"""Settings that only one algorithm has."""
ONLY_FOR_ACTOR_CRITIC = ("discount", "trace", "minibatches", "warm_up")
if TYPE_CHECKING:
    _T = TypeVar("_T")
    Derived = Annotated[_T, "a setting whose default depends on other settings"]
    Rate = float
else:
    Derived = Optional
    Rate = float | tuple[float, ...]  # one for all seeds or, in Python, one for each
DERIVED: Any = None
"""The default of a `Derived` field; the config replaces it by a value."""


def objective_terms(text: str) -> dict[str, float]:
    """The names in an objective and their weights.

    >>> objective_terms("own+0.5*skills")
    {'own': 1.0, 'skills': 0.5}
    """
    found = [_TERM.fullmatch(term) for term in text.replace(" ", "").split("+")]
    terms = {match[2]: float(match[1] or 1) for match in found if match is not None}
    if len(terms) < len(found) or terms.keys() - {*OBJECTIVES} or not all(terms.values()):
        known = ", ".join(OBJECTIVES)
        raise ValueError(
            f"objective must be {known}, a sum with weights such as own+2*skills, or MODULE:NAME, not {text!r:.80}"
        )
    return terms


def default_is(text: str, metavar: str = "INT", kind: Any = None) -> object:
    """How an option is shown whose default is computed; `kind` is the type to read, if it is not that of the field."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {text})", constructor=kind)


def one_of(names: Sequence[str], *, is_repeated: bool = False) -> object:
    return tyro.conf.arg(metavar="{" + ",".join(names) + "}" + (" ..." if is_repeated else ""))


def from_preset(name: str, metavar: str) -> object:
    """How an option is shown whose default comes from the preset."""
    default, paper, by_pgpse = PRESETS["farflung"][name], PRESETS["paper"][name], NEURAL_PRESETS["farflung"][name]
    networks = ACTOR_CRITIC_PRESET.get(name, by_pgpse)
    shown = f"{default}; paper preset: {paper}" + (f"; networks: {networks}" if networks != default else "")
    return default_is(shown + (f"; networks by pgpse: {by_pgpse}" if by_pgpse != networks else ""), metavar)


World = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORLD")]
Horizon = Annotated[int | None, default_is("the paper's or the environment's own; in a map, enough for the farthest state")]
Slip = Annotated[float | None, default_is("0.2 for the -stoc worlds, else 0", "FLOAT")]
