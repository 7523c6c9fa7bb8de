"""The names and defaults that configs share, and how their options are shown."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import tyro

PAPER_WORLDS = ("room-det", "room-stoc", "maze-det", "maze-stoc")
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
    "ant",
)
PAPER_SEEDS = (0, 1, 2, 42, 133)
ALGORITHM, ENTROPY = "pgpse", "auto"
"""What `explore` trains with and maximises unless something else is asked for."""
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
    "percent_of_ceiling",
)
"""What runs can be compared by: what is recorded of them, and how near the best possible they came."""
OPTIMIZERS = ("sgd", "adam", "natural", "trust-region")
NEURAL_OPTIMIZERS = ("sgd", "adam")
SCHEDULES = {"code": (0.15, 1.0), "text": (0.1, 0.999)}
"""The learning rate and its decay per update in the paper's released code, and in its text."""
LEARNING_RATES = {"sgd": 0.15, "adam": 0.15, "natural": 3.0, "trust-region": 0.003}
"""What an optimiser starts from if nothing else is asked for."""
NEURAL_LEARNING_RATES = {"sgd": 0.1, "adam": 0.003}
LOGGERS = ("tensorboard", "csv", "wandb", "trackio")
TABLES = ("stationary", "time-dependent")
NETWORKS = ("neural", "shared-trunk")
POLICIES = ("auto", *TABLES, *NETWORKS)
STDS = ("free", "state")
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
"""Ways to train tables in worlds with finitely many states: ours, and the paper's."""
NEURAL_PRESETS: dict[str, dict[str, Any]] = {
    "farflung": {
        "updates": 500,
        "credit": "causal",
        "optimizer": "adam",
        "init_scale": 0.01,
        "entropy_bonus": 0.1,
        "steps_per_batch": 5,
    },
    "paper": {
        "updates": 500,
        "credit": "total",
        "optimizer": "adam",
        "init_scale": 1.0,
        "entropy_bonus": 0.0,
        "steps_per_batch": 1,
    },
}
"""The same for networks in worlds whose states are vectors; the paper has none, so that its preset differs in the credit."""
UNSET: Any = None
"""A default that depends on other settings, and is put in its place when a config is made."""
if TYPE_CHECKING:
    _T = TypeVar("_T")
    Resolved = Annotated[_T, "what every config has, though it need not be given"]
else:
    Resolved = Optional


def default_is(text: str, metavar: str = "INT") -> object:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {text})")


def listed(rates: Mapping[str, float]) -> str:
    return ", ".join(f"{rate} {name}" for name, rate in rates.items())


def one_of(names: Sequence[str], *, is_repeated: bool = False) -> object:
    return tyro.conf.arg(metavar="{" + ",".join(names) + "}" + (" ..." if is_repeated else ""))


def from_preset(name: str, names: Sequence[str] = ()) -> object:
    metavar = "{" + ",".join(names) + "}" if names else "INT" if isinstance(PRESETS["paper"][name], int) else "FLOAT"
    hint = f"{PRESETS['farflung'][name]}; preset paper: {PRESETS['paper'][name]}"
    if (networks := NEURAL_PRESETS["farflung"].get(name, hint)) != PRESETS["farflung"][name]:
        hint += f"; networks: {networks}" if name in NEURAL_PRESETS["farflung"] else "; neural where states are vectors"
    return default_is(hint, metavar)


World = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORLD")]
Horizon = Annotated[int | None, default_is("the paper's, else the world's own limit or what the farthest state needs")]
Slip = Annotated[float | None, default_is("0.2 for the -stoc worlds, else 0", "FLOAT")]
