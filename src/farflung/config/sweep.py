"""Settings of `farflung sweep`, and of the launchers that run its jobs: no JAX is needed to make the jobs."""

import dataclasses
import itertools
import json
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import tyro

from farflung.config import checks, options
from farflung.config.explore import Explore
from farflung.config.options import PER_SEED, default_is, one_of

LAUNCHERS = ("local", "ray", "slurm")
_NOT_SWEPT = ("world", "seeds", "hidden")
_KINDS = {bool: "{False,True}", int: "INT", float: "FLOAT", str: "NAME"}
_LONGEST_NAME = 120


@dataclass(frozen=True)
class Launching:
    """Where jobs run."""

    launcher: Annotated[str, one_of(LAUNCHERS)] = "local"
    """Where to train: in this process (local), as tasks on a Ray cluster (ray), or as a Slurm job array (slurm)."""
    address: Annotated[str | None, default_is("RAY_ADDRESS, or a Ray cluster that starts on this machine", "ADDRESS")] = None
    """Address of a running Ray cluster, such as auto or ray://HOST:10001."""
    cpus: int = 1
    """CPU cores of a job, with ray and slurm."""
    gpus: float = 0.0
    """GPUs of a job, with ray and slurm; with ray, several jobs share a GPU if this is below 1."""
    in_flight: Annotated[int | None, default_is("as many as the cluster has room for")] = None
    """Maximum number of jobs that run or wait to run at the same time, with ray and slurm."""
    retries: int = 2
    """How often a job that failed or whose machine was lost is started again; it continues from its checkpoints."""
    minutes: int = 60
    """Time limit of a Slurm job; a job that reaches it writes checkpoints and is queued again."""
    partition: Annotated[str | None, default_is("the cluster's own", "NAME")] = None
    """Slurm partition."""
    slurm_options: Annotated[tuple[str, ...] | None, default_is("none", "KEY=VALUE [KEY=VALUE ...]")] = None
    """Further options of sbatch, such as account=lab mem=16GB constraint=a100."""

    def __post_init__(self) -> None:
        checks.check_name("launcher", self.launcher, LAUNCHERS)
        for name in ("cpus", "minutes"):
            checks.whole_number(name, getattr(self, name))
        if self.in_flight is not None:
            checks.whole_number("in_flight", self.in_flight)
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or not 0 <= self.retries <= checks.MOST:
            raise ValueError(f"retries must be a whole number from 0 on, not {self.retries!r}")
        if not (isinstance(self.gpus, int | float) and 0 <= self.gpus <= checks.MOST):
            raise ValueError(f"gpus must be a number from 0 on, not {self.gpus!r}")
        only = {"address": "ray", "partition": "slurm", "slurm_options": "slurm", "minutes": "slurm"}
        for each in fields(self):
            is_given = getattr(self, each.name) != each.default
            if is_given and each.name in only and self.launcher != only[each.name]:
                raise ValueError(f"{each.name} is for the launcher {only[each.name]}, not {self.launcher}")
            if is_given and self.launcher == "local" and each.name in ("cpus", "gpus", "in_flight"):
                raise ValueError(f"{each.name} is for the launchers ray and slurm: local uses all of this machine")
        if (self.gpus > 1 and self.gpus % 1) or (self.launcher == "slurm" and self.gpus % 1):
            raise ValueError(f"gpus must be a whole number, or with ray a part of one GPU, not {self.gpus:g}")
        for pair in self.slurm_options or ():
            name, equals, _ = pair.partition("=")
            if not (name.isidentifier() and equals):
                raise ValueError(f"slurm_options takes pairs KEY=VALUE, not {pair!r}")


class _Points:
    """What `farflung sweep` trains: the product of all settings with several values."""

    command: str
    worlds: tuple[str, ...]
    seeds: tuple[int, ...]
    hidden: tuple[int, ...]
    seeds_per_run: int | None
    runs_per_job: int | None

    def __post_init__(self) -> None:
        checks.check_name("command", self.command, ("explore",))
        if not self.worlds:
            raise ValueError("sweep explore needs at least one WORLD")
        for each in fields(self):  # type: ignore[arg-type]
            values = getattr(self, each.name)
            if each.name in _SWEPT and values == ():
                values = (True,) if _SWEPT[each.name] is bool else ()
                object.__setattr__(self, each.name, values)
            if isinstance(values, tuple) and each.name != "hidden" and (not values or len(set(values)) < len(values)):
                raise ValueError(f"{each.name} must be one or more values, all different")
        object.__setattr__(self, "seeds", checks.whole_seeds(self.seeds))
        for name in ("seeds_per_run", "runs_per_job"):
            if getattr(self, name) is not None:
                checks.whole_number(name, getattr(self, name))
        self.points()  # raises ValueError if a combination is not possible

    @property
    def swept(self) -> list[str]:
        """The settings that have several values."""
        return [*["world"] * (len(self.worlds) > 1), *(name for name in _SWEPT if len(getattr(self, name) or ()) > 1)]

    def points(self) -> dict[str, Explore]:
        """The settings of each run, by its name."""
        given = {"world": self.worlds, **{name: values for name in _SWEPT if (values := getattr(self, name)) is not None}}
        size = self.seeds_per_run or len(self.seeds)
        chunks = [self.seeds[first : first + size] for first in range(0, len(self.seeds), size)]
        points: dict[str, Explore] = {}
        for values in itertools.product(*given.values()):
            settings = dict(zip(given, values, strict=True))
            for seeds in chunks:
                config = Explore(**settings, hidden=self.hidden, seeds=seeds)
                parts = [config.world_name]
                parts += [f"{name.replace('_', '-')}-{settings[name]}" for name in self.swept if name != "world"]
                parts += [f"seeds-{seeds[0]}-{seeds[-1]}"] * (len(chunks) > 1)
                name = re.sub(r"[^\w.+-]", "-", "_".join(parts))[:_LONGEST_NAME]
                if name in points:
                    raise ValueError(f"two combinations of settings would have the same directory {name}: sweep them apart")
                points[name] = config
        return points

    def groups(self) -> list[dict[str, Explore]]:
        """The runs of each job: those that share a program, since they differ in numbers alone, train side by side."""
        shared: dict[str, dict[str, Explore]] = {}
        for name, config in self.points().items():
            structure = {each.name: getattr(config, each.name) for each in fields(config) if each.name not in PER_SEED}
            shared.setdefault(json.dumps(structure, default=str), {})[name] = config
        size = self.runs_per_job or len(self.points())
        return [dict(part) for group in shared.values() for part in _batches(list(group.items()), size)]


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _kind(annotation: Any) -> type | None:
    """The type of one value of a setting."""
    found = {annotation, *typing.get_args(annotation)}
    for part in typing.get_args(annotation):
        found |= {*typing.get_args(part)}
    return next((kind for kind in _KINDS if kind in found), None)


def _field_of(setting: "dataclasses.Field[Any]", annotation: Any) -> tuple[str, Any, Any]:
    """A field with several values for a setting of `Explore`."""
    kind = _kind(annotation)
    assert kind is not None, setting.name
    own = next((each for each in getattr(annotation, "__metadata__", ()) if hasattr(each, "metavar")), None)
    metavar = own.metavar if own is not None and own.metavar else _KINDS[kind]
    hint = own.help_behavior_hint if own is not None else None
    default = hint or f"(default: {setting.default})"
    about = tyro.conf.arg(metavar=f"{metavar} ...", help=_HELP[setting.name], help_behavior_hint=default)
    return setting.name, Annotated[tuple[kind, ...] | None, about], field(default=None)


def _helps() -> Mapping[str, str]:
    """The texts under the fields of `Explore`."""
    import ast
    import inspect

    (made,) = ast.parse(inspect.getsource(Explore)).body
    assert isinstance(made, ast.ClassDef)
    return {
        name.target.id: " ".join(text.value.value.split())
        for name, text in itertools.pairwise(made.body)
        if isinstance(name, ast.AnnAssign)
        and isinstance(name.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


_HELP = _helps()
_HINTS = typing.get_type_hints(Explore, include_extras=True)
_FIELDS = [_field_of(each, _HINTS[each.name]) for each in fields(Explore) if each.name not in _NOT_SWEPT]
_SWEPT = {name: _kind(_HINTS[name]) for name, _, _ in _FIELDS}
"""The settings that may have several values, and the type of each value."""

if typing.TYPE_CHECKING:
    Sweep = _Points
else:
    _DOC = """Train the same command with every combination of several settings, on this machine, a Ray cluster or Slurm.

    Each option of farflung explore takes one or more values; all combinations are trained, each as a run in the output
    directory. Runs that share a program, since they differ in numbers such as the learning rate, train side by side in one job.
    The same command continues after an interruption.
    """
    _worlds = tyro.conf.arg(metavar="WORLD [WORLD ...]", help="Worlds, as in farflung explore.")
    _PER_RUN = "Seeds in a run; the others are further runs, in jobs of their own."
    _split = default_is("all in one run")
    _jobs = default_is("all that share a program")
    Sweep = dataclasses.make_dataclass(
        "Sweep",
        [
            ("command", Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="explore", help="Command to sweep.")]),
            ("worlds", Annotated[tyro.conf.Positional[tuple[str, ...]], _worlds]),
            *_FIELDS,
            ("hidden", Annotated[tuple[int, ...], tyro.conf.arg(help=_HELP["hidden"])], field(default=(64, 64))),
            ("seeds", Annotated[tuple[int, ...], tyro.conf.arg(help=_HELP["seeds"])], field(default=options.PAPER_SEEDS)),
            (
                "seeds_per_run",
                Annotated[
                    int | None, tyro.conf.arg(help="Seeds in a run; the others are further runs, in jobs of their own."), _split
                ],
                field(default=None),
            ),
            (
                "runs_per_job",
                Annotated[int | None, tyro.conf.arg(help="Maximum number of runs that train side by side in one job."), _jobs],
                field(default=None),
            ),
        ],
        bases=(_Points,),
        namespace={"__doc__": _DOC, "__module__": __name__},
        frozen=True,
    )
