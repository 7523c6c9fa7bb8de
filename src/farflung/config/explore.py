"""What `farflung explore` can be asked for."""

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from farflung.config.checks import (
    check_learning,
    check_name,
    check_positive,
    check_team_in_world,
    check_text,
    whole_number,
    whole_seeds,
)
from farflung.config.options import (
    ALGORITHM,
    COMBINED_CREDITS,
    CONTINUOUS_WORLDS,
    CREDITS,
    ENTROPY,
    LEARNING_RATES,
    NETWORKS,
    NEURAL_LEARNING_RATES,
    NEURAL_PRESETS,
    OPTIMIZERS,
    PAPER_SEEDS,
    POLICIES,
    PRESETS,
    STDS,
    TABLES,
    UNSET,
    Horizon,
    Resolved,
    Slip,
    World,
    default_is,
    from_preset,
    listed,
    one_of,
)
from farflung.config.worlds import is_map_file

_BONUS_LEFT = 5.0
_OF_NETWORKS = ("hidden", "std", "init_std")
_LEAST_STD, _MOST_STD = 0.01, 7.0


@dataclass(frozen=True)
class Explore:
    """Train a team of agents to visit, together, as many different states as evenly as possible.

    WORLD is room-det, room-stoc, maze-det or maze-stoc; the path of a text map (# wall, . free, S start, G goal); a world whose
    states are vectors (point-empty, point-gap, point-four-rooms, point-room, point-maze, mepol-grid, mountain-car, pendulum,
    ant ...), where policies are neural networks; or the id of a Gymnasium environment (module:id imports the module first). One
    that carries a transition table (FrozenLake-v1, CliffWalking-v1, Taxi-v4) is compiled; any other is stepped on the host, by
    networks where its observations are real numbers.
    """

    _left_open: ClassVar[tuple[str, ...]] = ()
    """Of each config, what was left open when it was made."""

    world: World
    """The name of a world, the path of a map, or a Gymnasium id."""
    agents: int = 6
    """Agents in the team, each in its own copy of the world (m in the paper)."""
    trajectories: int = 1
    """Trajectories that each agent plays per batch element (K)."""
    horizon: Horizon = None
    """Actions in an episode (T)."""
    slip: Slip = None
    """Probability that another action is taken than the chosen one; for maps."""
    batch_size: int = 40
    """Independent repetitions of the team's episodes that one update averages over (B)."""
    preset: Annotated[str, one_of(tuple(PRESETS))] = "farflung"
    """Where the defaults of what follows come from: our best, or the paper's."""
    algorithm: Annotated[str, tyro.conf.arg(metavar="{pgpse}|MODULE:NAME")] = ALGORITHM
    """Training algorithm: pgpse, or one of your own that Python can import."""
    entropy: Annotated[str, tyro.conf.arg(metavar="{auto}|MODULE:NAME")] = ENTROPY
    """Entropy that is maximised: the world's own estimate, or one of your own that Python can import."""
    updates: Annotated[Resolved[int], from_preset("updates")] = UNSET
    """Policy updates (N)."""
    credit: Annotated[Resolved[str], from_preset("credit", CREDITS)] = UNSET
    """How the team's entropy becomes the weight of each action; MODULE:NAME for a function of your own."""
    combinations: int = 1
    """Ways to make teams of a batch's trajectories that difference and causal are averaged over."""
    optimizer: Annotated[Resolved[str], from_preset("optimizer", OPTIMIZERS)] = UNSET
    """Plain gradient ascent, Adam, the natural gradient, or that with steps of a given KL divergence."""
    learning_rate: Annotated[
        Resolved[float], default_is(f"{listed(LEARNING_RATES)}; networks: {listed(NEURAL_LEARNING_RATES)}", "FLOAT")
    ] = UNSET
    """Step size of the optimiser; for trust-region the KL divergence of a step in nats."""
    decay: float = 1.0
    """Factor on the learning rate after each update; the paper's text has 0.999, its code 1."""
    policy: Annotated[Resolved[str], from_preset("policy", POLICIES)] = UNSET
    """One softmax table per agent, or one for each time (auto: if small); for vectors a network each, or a shared trunk."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the layers of such networks."""
    std: Annotated[str, one_of(STDS)] = "free"
    """Whether the standard deviations of their actions are parameters, or depend on the state."""
    init_std: float = 0.6
    """What they start at, before an action is squashed into its bounds."""
    init_scale: Annotated[Resolved[float], from_preset("init_scale")] = UNSET
    """The policies' first logits are drawn uniformly from (-init_scale, init_scale); a factor on a network's last weights."""
    entropy_bonus: Annotated[Resolved[float], from_preset("entropy_bonus")] = UNSET
    """Weight of the policies' own mean entropy, against early determinism."""
    bonus_decay: Annotated[Resolved[float], default_is("so that 1% is left at the end", "FLOAT")] = UNSET
    """Factor on that weight after each update."""
    steps_per_batch: Annotated[Resolved[int], from_preset("steps_per_batch")] = UNSET
    """Steps that are made with one batch, with clipped importance weights after the first."""
    clip: float = 0.2
    """How much an action's probability may change in them, relative to what it was."""
    single: bool = False
    """Train the paper's baseline instead: one policy that plays agents x trajectories trajectories."""
    independent: bool = False
    """Train a baseline that the paper lacks instead: each agent for its own entropy alone."""
    stop_when_flat: bool = False
    """Stop early when the mean entropy no longer grows."""
    seeds: tuple[int, ...] = PAPER_SEEDS
    """One independent training run each; they run side by side on all cores or devices."""
    log_every: Annotated[int | None, default_is("so many that recording costs under 10% of the time")] = None
    """Updates between records of the metrics."""

    def __post_init__(self) -> None:
        check_text("world", self.world)
        for name in ("single", "independent", "stop_when_flat"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is true or false, not {getattr(self, name)!r}")
        check_name("preset", self.preset, tuple(PRESETS))
        object.__setattr__(self, "_left_open", tuple(field.name for field in fields(self) if getattr(self, field.name) is None))
        if self.policy is None and self.world in CONTINUOUS_WORLDS:
            object.__setattr__(self, "policy", "neural")
        presets, rates = (NEURAL_PRESETS, NEURAL_LEARNING_RATES) if self.is_neural else (PRESETS, LEARNING_RATES)
        for name, value in presets[self.preset].items():
            self._default(name, value)
        check_name("optimizer", self.optimizer, OPTIMIZERS)
        if self.optimizer not in rates:
            raise ValueError(f"{self.optimizer} steps are for tables: networks learn with {' or '.join(rates)}")
        self._default("learning_rate", rates[self.optimizer])
        check_team_in_world(self)
        for name in ("batch_size", "updates", "log_every", "combinations", "steps_per_batch"):
            value = getattr(self, name)
            if value is not None or name != "log_every":
                object.__setattr__(self, name, whole_number(name, value))
        self._default("bonus_decay", math.exp(-_BONUS_LEFT / self.updates))
        check_learning(self)
        for name, known in (("algorithm", (ALGORITHM,)), ("entropy", (ENTROPY,)), ("credit", CREDITS)):
            if ":" not in getattr(self, name):
                check_name(name, getattr(self, name), known)
            check_text(name, getattr(self, name))
        for name, names in (("policy", POLICIES), ("std", STDS)):
            check_name(name, getattr(self, name), names)
        if self.world in CONTINUOUS_WORLDS and self.policy in TABLES:
            raise ValueError(f"the states of {self.world} are vectors: its policies are {' or '.join(NETWORKS)}, not tables")
        if not isinstance(self.hidden, Iterable) or not tuple(self.hidden):
            raise ValueError(f"hidden is the widths of one or more layers, not {self.hidden!r}")
        object.__setattr__(self, "hidden", tuple(whole_number("hidden", width) for width in self.hidden))
        check_positive("init_std", self.init_std)
        if not _LEAST_STD <= self.init_std <= _MOST_STD:
            raise ValueError(f"init_std lies between {_LEAST_STD} and {_MOST_STD}, not {self.init_std}")
        if self.combinations > 1 and self.credit not in COMBINED_CREDITS:
            raise ValueError(f"combinations serve the credits {' and '.join(COMBINED_CREDITS)}, not {self.credit}")
        if self.combinations > self.batch_size:
            raise ValueError(f"a batch of {self.batch_size} has no more than as many combinations, not {self.combinations}")
        if self.single and self.independent:
            raise ValueError("a single policy has nobody to be independent of: choose --single or --independent")
        object.__setattr__(self, "seeds", whole_seeds(self.seeds))
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("the seeds must differ from one another: equal seeds give equal runs")

    def as_json(self) -> dict[str, Any]:
        """The settings for a file; the algorithm and the entropy only if they are the user's own."""
        defaults = {"algorithm": ALGORITHM, "entropy": ENTROPY}
        return {name: value for name, value in asdict(self).items() if name not in defaults or value != defaults[name]}

    @property
    def name(self) -> str:
        """What a run of it is called: after the world and who explores it."""
        world = Path(self.world).stem if is_map_file(self.world) else re.sub("[/:]", "-", self.world)
        return f"{world}-{self.agents}-{'single' if self.single else 'agents'}"

    @property
    def num_policies(self) -> int:
        """As many as agents, or one that plays all their trajectories."""
        return 1 if self.single else self.agents

    @property
    def trajectories_per_policy(self) -> int:
        return self.trajectories * self.agents // self.num_policies

    @property
    def is_neural(self) -> bool:
        return self.policy in NETWORKS

    @property
    def given(self) -> dict[str, Any]:
        """The settings that were not left open."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in self._left_open}

    def with_networks(self) -> "Explore":
        """The same for a world whose states turned out to be vectors: what was left open is settled anew."""
        if self.is_neural:
            return self
        if self.policy in TABLES and "policy" not in self._left_open:
            raise ValueError(f"the states of {self.world} are vectors: its policies are {' or '.join(NETWORKS)}, not tables")
        left_open: dict[str, Any] = dict.fromkeys(self._left_open)
        return replace(self, **(left_open | {"policy": "neural"}))

    def with_tables(self) -> "Explore":
        """The same for a world that turned out to have finitely many states, where nothing is to be said about networks."""
        if self.is_neural:
            raise ValueError(f"{self.world} has finitely many states: its policies are tables, not networks")
        for field in fields(self):
            if field.name in _OF_NETWORKS and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"{field.name} is for networks: {self.world} has finitely many states, its policies are tables"
                )
        return self

    def _default(self, name: str, value: Any) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)
