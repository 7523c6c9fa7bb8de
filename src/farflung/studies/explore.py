"""Train a team on one world: the work behind `farflung explore`."""

import contextlib
import dataclasses
import hashlib
import itertools
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, UInt

from farflung import bounds
from farflung.algorithms import Algorithm, team_shape
from farflung.algorithms.chosen import OwnAlgorithm, OwnObjective, UserParts, algorithm_for
from farflung.config import Explore
from farflung.config.checks import MOST, check_checkpoints, check_name, free_memory, is_suite
from farflung.config.imports import name_of
from farflung.config.options import OBJECTIVE
from farflung.config.reading import parse_object
from farflung.entropy.credit import Credit
from farflung.entropy.objective import ObjectiveIn, Utility
from farflung.loggers import Logger, resolved
from farflung.loggers.logger import LoggerGroup, finals_of
from farflung.numerics.arrays import runs_on_cpu
from farflung.numerics.compilation import REPRODUCIBLE, ReproducibleIfWorld
from farflung.numerics.programs import computed
from farflung.policies import UniformPolicy, uniform_team
from farflung.policies.rollout import play
from farflung.runs import interrupts, program_cache, run
from farflung.runs.checkpoints import MINUTES, Checkpoint, Checkpointer, new_checkpoints, open_checkpoints
from farflung.runs.destinations import Destination, claimed
from farflung.runs.run import Paths, Run, typical_seed
from farflung.studies.trials import Status, begin, finish, joined_state, moments_of_rows, of_rows
from farflung.studies.view import LiveRun, page_of, refresh_neighbours
from farflung.training.compiled import CompiledRunner, check_can_be_spread
from farflung.training.divergence import check_num_samples, share_of_duplicates
from farflung.training.hosted import measure_random
from farflung.training.metrics import Metrics, measure_batch, normalized
from farflung.training.processes import Kind, Processes
from farflung.training.progress import ELEMENTS_SHOWN, Moments, TrainingState, shown_of
from farflung.worlds.hosted.pool import SimulatorWarning
from farflung.worlds.named import as_world
from farflung.worlds.tabular import TabularMDP
from farflung.worlds.world import World

if TYPE_CHECKING:
    from farflung.bounds.ceilings import Ceiling

_CEILING_SECONDS, _OBJECTIVE_SECONDS = 5, 20
_BYTES_PER_STEP = 16
"""The least memory for a step: its state, action, random number and weight."""
_BYTES_PER_NUMBER, _BYTES_PER_PARAMETER = 4, 12
"""The least memory for a number of a hidden layer, and for a parameter with its two means in the optimiser."""
_LOGS = Path("logs")


def explore(
    world: Any,
    *,
    algorithm: str | OwnAlgorithm | None = None,
    credit: str | Credit | None = None,
    objective: str | OwnObjective = OBJECTIVE,
    out: str | Path | Destination | None = None,
    force: bool = False,
    on_progress: Callable[[Status], None] | None = None,
    loggers: Sequence[Logger | str] = (),
    live: bool = True,
    checkpoint_minutes: float = MINUTES,
    checkpoint_updates: int | None = None,
    **settings: Any,
) -> Run:
    """Trains a team of agents to maximise the entropy of the states that they visit together.

    An interrupt (Ctrl-C) ends the training early, saves and returns what there is; the same call, or `resume`, continues it. If
    nothing was recorded yet, the interrupt is raised.

    >>> run = explore("room-det", agents=2, updates=20, seeds=(0, 1))
    >>> run.metrics.entropy.shape == (2, len(run.updates))
    True

    Args:
        world: a world; its name, as `farflung explore` takes it; or a JAX world of your own, with `reset(key)`,
            `step(key, state, action)` and `observe(state)`.
        algorithm: `pgpse`, by default for tables; `actor-critic`, for networks and by default for them; `diayn`; an algorithm
            of your own (`farflung.Algorithm`); a function of the config and the world that makes one; or the MODULE:NAME of
            either.
        credit: how the objective becomes a weight for each action: a name, a function of the objective and the states, or its
            MODULE:NAME.
        objective: what the team maximises: a name or a weighted sum of names, as `farflung explore` takes it; an `Objective`; a
            function of the world that makes one, such as a `Utility`; or its MODULE:NAME.
        out: the directory to save the run in; by default nothing is written. A run or an unfinished training of the same
            settings that is already there is returned or continued, unless a part of it is your own program.
        force: replace a run that is already there.
        on_progress: called a few times a second.
        loggers: follow the training; `tensorboard`, `csv`, `wandb` and `trackio` write to a new folder in `logs`.
        live: in a notebook, show the learning curve during the training, unless there is an `on_progress`.
        checkpoint_minutes: minutes between checkpoints in `out`.
        checkpoint_updates: updates between checkpoints, at most.
        settings: the other fields of `farflung.Explore`, such as `agents`, `updates` and `seeds`.
    """
    for name in settings:
        check_name("setting", name, [field.name for field in dataclasses.fields(Explore)])
    program_cache.keep_programs()
    named: dict[str, Any] = {"algorithm": algorithm, "credit": credit, "objective": objective}
    own = UserParts(**{name: part for name, part in named.items() if part is not None and not isinstance(part, str)})
    for name, part in named.items():
        if isinstance(part, str) and (name, part) != ("objective", OBJECTIVE):
            settings[name] = part
        elif part is not None and not isinstance(part, str):
            settings[name] = name_of(part)
    with contextlib.nullcontext() if out is None else claimed(out) as place:
        if isinstance(world, str | Path):
            config, made = Explore(str(world), **settings), None
        else:
            if settings.get("horizon") is not None or settings.get("slip") is not None:
                raise ValueError("horizon and slip are part of the world that was given")
            made = as_world(world).with_environment()
            config = Explore(made.name, **settings)
        return explore_config(
            config,
            made,
            own,
            given=settings.keys(),
            out=place,
            force=force,
            on_progress=on_progress,
            loggers=loggers,
            live=live,
            checkpoint_minutes=checkpoint_minutes,
            checkpoint_updates=checkpoint_updates,
        )


def explore_config(
    config: Explore,
    world: World | None = None,
    own: UserParts = UserParts(),  # noqa: B008
    *,
    given: Collection[str],
    out: Destination | None = None,
    force: bool = False,
    on_progress: Callable[[Status], None] | None = None,
    loggers: Sequence[Logger | str] = (),
    live: bool = True,
    checkpoint_minutes: float = MINUTES,
    checkpoint_updates: int | None = None,
    processes: Processes | None = None,
) -> Run:
    """Trains the team of a config, as `explore` does.

    Args:
        world: the world, if the name in the config is not enough to make it.
        given: the names of the settings that the user has chosen.
        processes: that share the agents; this one is the first of them, and the others `follow`.
    """
    check_checkpoints(checkpoint_minutes, checkpoint_updates)
    if world is None:
        world = as_world(config.world, horizon=config.horizon, slip=config.slip)
    config = config.resolved(has_vectors=world.projection is not None, knows_all_states=world.knows_all_states)
    algorithms = one_per_seed(config, lambda each: algorithm_for(each, world, own, given))
    config = _with_sizes(config, algorithms[0], world, given)
    if world.projection is not None:
        check_num_samples(config, world.projection, world.horizon)
    if out is None:
        training = begun(config, world, algorithms, None)
        return train_side_by_side([training], world, on_progress, loggers, live=live, processes=processes)[0]
    may_continue = not force and not _has_own_parts(config, world)
    if may_continue and (finished := run.finished_run(out, config, world)) is not None:
        return finished
    intervals = (checkpoint_minutes, checkpoint_updates)
    with new_checkpoints(out, config, world, *intervals, force=force, may_continue=may_continue) as checkpointer:
        training = begun(config, world, algorithms, checkpointer)
        return train_side_by_side([training], world, on_progress, loggers, live=live, processes=processes)[0]


def one_per_seed(config: Explore, make: Callable[[Explore], Algorithm]) -> list[Algorithm]:
    """The algorithm of each seed: one object for all, unless a setting has a number for each."""
    each = [config.of_seed(row) for row in range(len(config.seeds))]
    return [make(config)] * len(each) if each[0] is config else [make(own) for own in each]


def _has_own_parts(config: Explore, world: World) -> bool:
    """Whether a part of the training is the user's own program, which may have changed under the same name."""
    names = ("" if is_suite(config.world) else config.world, config.algorithm, config.credit, config.objective)
    return any(":" in str(name) for name in names) or (world.is_hosted and not getattr(world, "settings", None))


def resume(
    path: str | Path,
    *,
    world: Any = None,
    algorithm: OwnAlgorithm | None = None,
    credit: Credit | None = None,
    objective: OwnObjective | None = None,
    on_progress: Callable[[Status], None] | None = None,
    loggers: Sequence[Logger | str] = (),
    live: bool = True,
    checkpoint_minutes: float = MINUTES,
    checkpoint_updates: int | None = None,
    processes: Processes | None = None,
) -> Run:
    """Continues a training that was interrupted; on the same kind of device it ends, bit for bit, as if nothing had happened.

    Args:
        path: the directory that its run was to be saved in.
        world: the world of the run; give it again if the run records it as custom:NAME, or by the name of a class.
        algorithm: your own algorithm; give it again if the run records it as custom:NAME.
        credit: your own credit; give it again if the run records it as custom:NAME.
        objective: your own objective; give it again if the run records it as custom:NAME.
        processes: that share the agents; they need not be as many as before.
    """
    check_checkpoints(checkpoint_minutes, checkpoint_updates)
    program_cache.keep_programs()
    world = None if world is None else as_world(world)
    with open_checkpoints(Path(path), world, checkpoint_minutes, checkpoint_updates) as checkpointer:
        config, world = checkpointer.config, checkpointer.world
        parts = UserParts(algorithm, credit, objective)
        made = one_per_seed(config, lambda each: algorithm_for(each, world, parts, is_from_file=True))
        training = begun(config, world, made, checkpointer)
        return train_side_by_side([training], world, on_progress, loggers, live=live, processes=processes)[0]


def follow(processes: Processes) -> None:
    """Trains the agents of this process, one of several, as the first process says; only the first one writes."""
    runner: CompiledRunner | None = None
    with interrupts.stoppable():  # the first process gets the signal too, and ends the training at a safe place
        while (message := processes.receive()).kind is not Kind.END:
            if message.kind is Kind.SET_UP:
                runner = _follower(processes)
            elif runner is not None:
                runner.follow(message)


def _follower(processes: Processes) -> CompiledRunner:
    shared = processes.share()
    config = run.read_config(header := parse_object(str(shared.pop("config"))))
    world = run.world_from(shared.pop("world").tobytes()).with_environment(**dict(header["stepping"]))
    update = int(shared.pop("update"))
    state = None if update < 0 else TrainingState(update, [shared[f"leaf{number}"] for number in range(len(shared))])
    algorithms = one_per_seed(config, lambda each: algorithm_for(each, world, UserParts(), is_from_file=True))
    compiled: Any = world if world.table is None else world.table
    return CompiledRunner(algorithms, compiled, config.seeds, state, processes)


def _lead(processes: Processes, config: Explore, world: World, state: TrainingState | None) -> None:
    """Gives the other processes all that they need for the training."""
    header = run.write_header(config, version("farflung"), stepping=world.stepping)
    content = {"config": np.array(header), "world": np.frombuffer(run.world_to_bytes(world), np.uint8)}
    content["update"] = np.array(-1 if state is None else state.update)
    if state is not None:
        content |= {f"leaf{number}": leaf for number, leaf in enumerate(state.leaves)}
    processes.send(Kind.SET_UP)
    processes.share(content)


def _with_sizes(config: Explore, algorithm: Algorithm, world: World, given: Collection[str]) -> Explore:
    """The config with the sizes of an algorithm of the user's own."""
    team = team_shape(algorithm, world)
    sizes: dict[str, Any] = {"batch_size": algorithm.batch_size}
    if (team.num_agents, algorithm.num_trajectories) != (config.num_policies, config.trajectories_per_policy):
        if config.single:
            raise ValueError(f"single asks for one policy, but the algorithm has {team.num_agents}")
        sizes |= {"agents": team.num_agents, "trajectories": algorithm.num_trajectories}
    for name, size in sizes.items():
        if name in given and getattr(config, name) != size:
            raise ValueError(f"{name} is {getattr(config, name)}, but the algorithm has {size}: drop {name}")
    is_as_asked = all(getattr(config, name) == size for name, size in sizes.items())
    return config if is_as_asked else dataclasses.replace(config, **sizes)


class Training(NamedTuple):
    """One of the trainings that run side by side, of which there is mostly one."""

    config: Explore
    algorithms: Sequence[Algorithm]
    """Of each seed."""
    checkpointer: Checkpointer | None = None
    checkpoint: Checkpoint | None = None
    """From which it continues."""
    more: Mapping[str, Any] = {}
    """Further entries of the run's summary."""

    @property
    def stage(self) -> Any:
        """Equal for trainings that can continue side by side."""
        return None if self.checkpoint is None else (self.checkpoint.training_state.update, *self.checkpoint.moments.updates)


def begun(config: Explore, world: World, algorithms: Sequence[Algorithm], checkpointer: Checkpointer | None) -> Training:
    """A training that starts, or continues from its latest checkpoint."""
    _check_steps(config, world, algorithms[0])
    checkpoint = None if checkpointer is None else checkpointer.latest()
    if checkpoint is not None and checkpoint.world is not None:
        world.add_states_of(checkpoint.world)
    return Training(config, algorithms, checkpointer, checkpoint)


def train_side_by_side(
    trainings: Sequence[Training],
    world: World,
    on_progress: Callable[[Status], None] | None,
    loggers: Sequence[Logger | str] = (),
    *,
    live: bool = False,
    processes: Processes | None = None,
) -> list[Run]:
    """Trains side by side, from the start or from the latest checkpoints, and saves each run that has a checkpointer."""
    config, algorithms, checkpointer = trainings[0][:3]
    if processes is not None:
        if config.single:
            raise ValueError("--distributed spreads a team's agents over processes: --single has one policy alone")
        check_can_be_spread(algorithms[0], world, processes.count)
    checkpointers = [each.checkpointer for each in trainings if each.checkpointer is not None]
    checkpoints = [each.checkpoint for each in trainings if each.checkpoint is not None]
    objective: ObjectiveIn | None = getattr(algorithms[0], "objective", None)
    name = config.name if checkpointer is None else checkpointer.place.folder.name
    with contextlib.ExitStack() as hints:
        for each in checkpointers:
            hints.enter_context(each.resume_hint())
        hints.enter_context(interrupts.stoppable())
        chosen = hints.enter_context(resolved(loggers, _LOGS, name))
        followers = hints.enter_context(LoggerGroup(config))
        for logger in chosen:
            followers.add(logger)
        for each in checkpointers:
            each.check_alone()  # a logger may have put its files there
        if on_progress is not None:
            on_progress(Status(0, config.updates, 0.0, None, None))
        with (
            contextlib.ExitStack() as views,
            ThreadPoolExecutor(1) as pool,  # while the team trains in compiled code
        ):
            state = joined_state([each.training_state for each in checkpoints]) if checkpoints else None
            if processes is not None:
                _lead(processes, config, world, state)
            watched = [
                views.enter_context(LiveRun(each.config, world, each.place.folder.name, each.folder)) for each in checkpointers
            ]
            trials = begin(
                [each.config for each in trainings],
                [world] * len(trainings),
                training_state=state,
                algorithms=[algorithm for each in trainings for algorithm in each.algorithms],
                processes=processes,
            )
            highest = pool.submit(_ceiling, config, world)
            of_objective = pool.submit(_objective_ceiling, config, world, objective)
            random = None if world.is_hosted else pool.submit(_baseline, config, world, objective)
            if checkpointers:
                pool.submit(_import_for_figures)
            for each in checkpointers:
                each.has_started = True
            if live and on_progress is None and "IPython" in sys.modules:
                from farflung.figures import notebook

                if notebook.is_notebook():
                    followers.add(notebook.LiveCurve(highest))

            def on_moment(moments: Moments) -> None:
                for each, rows in zip(watched, trials.rows, strict=bool(watched)):
                    each.show(moments_of_rows(moments, rows))

            def on_records(updates: Any, steps: Any, metrics: Metrics) -> None:
                followers.log(updates, steps, metrics)
                for each, rows in zip(watched, trials.rows, strict=bool(watched)):
                    each.log(updates, steps, of_rows(metrics, rows))

            trained = finish(trials, on_progress, on_records, checkpointers, checkpoints, on_moment)
        if len(trained) > 1 and "stopped_because" in trained[0].summary:  # by one of them: the others continue without it
            return [train_side_by_side([begun(each.config, world, *each[1:3])], world, on_progress)[0] for each in trainings]
        baseline = _baseline(config, world, objective) if random is None else random.result()
        found = (highest.result(), baseline, of_objective.result())
        finished = [_finished(each, *found, own.more) for each, own in zip(trained, trainings, strict=True)]
        followers.finals = finals_of(finished[0].summary)
        for each, own in zip(checkpointers, finished, strict=bool(checkpointers)):
            from farflung.figures import explored

            page = page_of(own, each.place.folder)
            run.save_run(own, each.place, force=True, figures={"figure": explored(own)}, page=page)
            if len(trainings) == 1:
                refresh_neighbours(own, each.place.folder)
    return finished


def _finished(
    trained: Run,
    highest: "Ceiling",
    baseline: "_RandomActions | None",
    objective: "Ceiling | None",
    more: Mapping[str, Any],
) -> Run:
    """A run with its ceiling, the metrics of random actions, and episodes to look at."""
    if not trained.world.knows_all_states:
        highest = highest.in_units_of(trained.world.num_states)
    percentages = highest.percentage(np.asarray(trained.summary["final"]["entropy"])).tolist()
    further = {
        **more,
        **({} if baseline is None else {"random": baseline.metrics}),
        "ceiling": highest.as_json(),
        "percent_of_ceiling": percentages,
    }
    if "objective" in trained.summary["final"]:
        further["objective"] = _about_objective(trained.config, objective, trained.summary["final"]["objective"])
    trained = _with_paths(dataclasses.replace(trained, summary={**trained.summary, **further}))
    if trained.playback is None:
        return trained
    random_episodes = None if baseline is None else baseline.episodes
    playback = trained.playback._replace(random=random_episodes, best=highest.trajectories)
    return dataclasses.replace(trained, playback=playback)


def _check_steps(config: Explore, world: World, algorithm: Algorithm) -> None:
    """Raises ValueError if an update has more steps than can be counted, or needs more memory than is free."""
    num_steps, what, advice = run.steps_per_update(config, world), "", "a smaller batch, team or horizon"
    needed = _BYTES_PER_STEP * num_steps
    if (networks := getattr(algorithm, "networks", None)) is not None:
        pairs = itertools.pairwise((world.observation_size, *networks.hidden))
        num_trunks = 1 if networks.has_shared_trunk or networks.is_conditioned else config.num_policies
        num_parameters = num_trunks * sum(rows * columns for rows, columns in pairs)
        numbers = world.state_size + sum(networks.hidden)
        needed += _BYTES_PER_NUMBER * num_steps * numbers + _BYTES_PER_PARAMETER * num_parameters
        what, advice = f" and {num_parameters:,} parameters", f"{advice}, or narrower networks (--hidden)"
    needed, free = needed * len(config.seeds), free_memory()
    if num_steps > MOST or (needed > free and runs_on_cpu()):
        limit = f"{MOST:,} steps can be counted" if num_steps > MOST else f"{free / 2**30:.1f} GiB of memory are free"
        raise ValueError(f"an update has {num_steps:,} steps{what}, but only {limit}: choose {advice}")


def _with_paths(trained: Run) -> Run:
    """With a few episodes of the typical team, to look at; for a host-stepped world, those of the last record."""
    projection = trained.world.projection
    if projection is None:
        return trained
    seed = typical_seed(trained)
    if trained.host_statistics is not None:
        assert trained.host_statistics.features is not None
        features = trained.host_statistics.features[trained.config.seeds.index(seed)]
    else:
        team = trained.team(seed).policies
        num_trajectories = trained.config.trajectories_per_policy
        played = _play[trained.world](jr.key(0), team, trained.world, ELEMENTS_SHOWN, num_trajectories)
        features = np.asarray(projection.project(played.states))
        if size := trained.world.pose_size:
            poses = np.asarray(played.states[0, ..., :size], np.float32).reshape(-1, trained.world.horizon + 1, size)
            stride = -(-poses.shape[1] // run.MOST_POSES)
            trained = dataclasses.replace(trained, poses=poses[: run.MOST_POSED, ::stride])
    paths = Paths(seed, features)
    if projection.neighbours == 0 or "transfer" in trained.summary:  # who has reached a goal may stay there
        return dataclasses.replace(trained, paths=paths)
    alike = share_of_duplicates(trained.config.world, paths.features, projection)
    return dataclasses.replace(trained, paths=paths, summary={**trained.summary, "alike": alike})


def _import_for_figures() -> None:
    """Imports, while the team trains, what its figure needs afterwards."""
    import scipy.special  # noqa: F401
    from matplotlib.backends import backend_agg, backend_svg  # noqa: F401

    from farflung.figures import explored  # noqa: F401


def _ceiling(config: Explore, world: World) -> "Ceiling":
    from farflung.bounds.ceilings import Ceiling, ceiling, ceiling_by_counting  # while the team trains

    if world.table is None:
        num_samples = config.agents * config.trajectories * (world.horizon + 1)
        return ceiling_by_counting(num_samples, world.num_states if world.knows_all_states else None)
    name = f"ceiling-{_digest_for_ceiling(world.table, config.agents * config.trajectories)}"
    if (known := program_cache.kept(name)) is not None:
        visits, walks = known.pop("visits"), known.pop("trajectories")
        return Ceiling(**known, visits=np.asarray(visits), trajectories=None if walks is None else np.asarray(walks))
    found = ceiling(world, config.agents, trajectories=config.trajectories, time_limit=_CEILING_SECONDS)
    if found.exact or found.method == "lp":  # else more time would give another one
        walks = None if found.trajectories is None else found.trajectories.tolist()
        program_cache.keep(name, {**found.as_json(), "visits": found.visits.tolist(), "trajectories": walks})
    return found


def _objective_ceiling(config: Explore, world: World, objective: ObjectiveIn | None) -> "Ceiling | None":
    """The ceiling of an objective that is not the entropy of states, if it has a certificate in this world."""
    from farflung.bounds.ceilings import ceiling

    certified = objective if isinstance(objective, Utility) else config.objective
    if objective is None or world.table is None or (isinstance(certified, str) and ":" in certified):
        return None
    sizes: dict[str, Any] = {"trajectories": config.trajectories, "time_limit": _OBJECTIVE_SECONDS}
    return ceiling(world, config.agents, objective=certified, **sizes)


def _about_objective(config: Explore, highest: "Ceiling | None", final: list[float]) -> dict[str, Any]:
    about: dict[str, Any] = {"name": config.objective}
    if highest is not None:
        about |= {name: getattr(highest, name) for name in ("bound", "exact", "method")}
        about["below_bound"] = [highest.bound - value for value in final]
    return about


def _digest_for_ceiling(world: TabularMDP, num_walks: int) -> str:
    """A digest of all that a ceiling is computed from, with the code that computes it."""
    digest = hashlib.sha256(f"{num_walks} {world.horizon} {version('scipy')}".encode())
    for path in sorted(Path(bounds.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    for leaf in (world.successors, world.cumulative_probability, world.start_states, world.start_cumulative_probability):
        table = np.asarray(leaf)
        digest.update(f"{table.shape} {table.dtype}".encode() + table.tobytes())
    return digest.hexdigest()


class _RandomActions(NamedTuple):
    """How random actions do in a world."""

    metrics: dict[str, float]
    episodes: np.ndarray


def _baseline(config: Explore, world: World, objective: ObjectiveIn | None) -> _RandomActions | None:
    """The metrics of random actions; None if an environment fails with them, since no training must be lost for that."""
    try:
        metrics, episodes = _of_random_actions(config, world, objective)
    except ValueError as error:
        if not world.is_hosted:
            raise
        warnings.warn(f"random actions were not measured: {error}", SimulatorWarning, stacklevel=3)
        return None
    return _RandomActions({name: float(value) for name, value in metrics.columns.items()}, np.asarray(episodes))


def _of_random_actions(config: Explore, world: World, objective: ObjectiveIn | None) -> tuple[Metrics, Any]:
    if world.is_hosted:
        num_states = world.num_states  # of the run: random actions may find more
        sizes = (config.agents, config.batch_size, config.trajectories)
        found, episodes = measure_random(world.snapshot(), *sizes, objective)
        if world.projection is not None:
            return found, episodes
        return found._replace(normalized_entropy=normalized(found.entropy, num_states)), np.minimum(episodes, num_states)
    if world.table is not None:
        return random_baseline(config, world.table, objective)
    team = UniformPolicy(world.actions, config.agents)
    batch = _play[world](jr.key(0), team, world, config.batch_size, config.trajectories)
    return measure_batch(world, team, batch, objective), shown_of(world, batch.states)


def random_baseline(
    config: Explore, world: TabularMDP, objective: ObjectiveIn | None = None
) -> tuple[Metrics, Int[Array, "element agent trajectory times"]]:
    """The metrics of a team that acts uniformly at random, over about a million steps, and a few of its episodes."""
    per_element = config.agents * config.trajectories * world.horizon
    batch_size = int(np.clip(1_000_000 // max(per_element, world.num_states), 4, 4096))
    sizes = (config.agents, batch_size, config.trajectories)
    return computed(_measure_uniform, (*sizes, objective), np.uint32(0), world)


_play = ReproducibleIfWorld(play, static_argnums=(3, 4))


@partial(jax.jit, static_argnums=(0, 1, 2, 3), compiler_options=REPRODUCIBLE)
def _measure_uniform(
    num_agents: int,
    batch_size: int,
    num_trajectories: int,
    objective: ObjectiveIn | None,
    seed: UInt[Array, ""],
    world: TabularMDP,
) -> tuple[Metrics, Int[Array, "element agent trajectory times"]]:
    team = uniform_team(world, num_agents)
    batch = play(jr.key(seed), team, world, batch_size, num_trajectories)
    return measure_batch(world, team, batch, objective), shown_of(world, batch.states)
