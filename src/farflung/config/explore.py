"""Settings of `farflung explore`."""

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from farflung.config import checks, options
from farflung.config.options import DERIVED, Derived, default_is, from_preset, one_of

_BONUS_LEFT = 5.0
_RATE_LEFT = 0.1
_FOR_NETWORKS = ("hidden", "std", "init_std")
_LEAST_STD, _MOST_STD = 0.01, 7.0
_RATES, _NEURAL_RATES = (
    ", ".join(f"{rate} {name}" for name, rate in rates.items())
    for rates in (options.LEARNING_RATES, options.ACTOR_CRITIC_LEARNING_RATES)
)
_ALL_RATES = (
    f"{_RATES}; states numbered as they are met: {options.NOISY_LEARNING_RATE} adam; networks: {_NEURAL_RATES}; "
    f"networks by pgpse: {options.NEURAL_LEARNING_RATES['adam']} adam"
)


@dataclass(frozen=True)
class Explore:
    """Train a team of agents to maximise the entropy of the states that they visit together.

    WORLD is one of the paper's worlds (room-det, room-stoc, maze-det, maze-stoc); the path of a text map (# wall, . free,
    S start, G goal); a continuous world (point-empty, point-gap, point-four-rooms, point-room, point-maze, mepol-grid,
    mountain-car, mountain-car-discrete, pendulum) or robot (ant, half-cheetah, hopper, walker2d, humanoid); an environment of a
    JAX suite (gymnax:ID, craftax:ID, navix:ID, xminigrid:ID, jumanji:ID, brax:ID, playground:ID); the id of a Gymnasium
    environment (MODULE:ID imports the module first); or MODULE:NAME, a world of your own. Where states are vectors, policies
    are neural networks. A Gymnasium environment with a transition table (FrozenLake-v1, CliffWalking-v1, Taxi-v4) is
    compiled; any other is stepped in Python.
    """

    given: ClassVar[Mapping[str, Any]]
    """Of each config: the settings that differ from their defaults."""

    world: options.World
    """Name of a world, path of a map, Gymnasium id, SUITE:ID of a JAX suite, or MODULE:NAME of your own world."""
    agents: int = 6
    """Agents in the team, each in its own copy of the world (m in the paper)."""
    trajectories: int = 1
    """Trajectories that each agent plays per batch element (K in the paper)."""
    horizon: options.Horizon = None
    """Actions in an episode (T in the paper)."""
    slip: options.Slip = None
    """Probability that one of the other actions replaces the chosen one; only for maps."""
    batch_size: Annotated[Derived[int], default_is("40; 8 for networks that the actor-critic trains")] = DERIVED
    """Batch elements per update; in each of them, the whole team plays its trajectories (B in the paper)."""
    preset: Annotated[str, one_of(tuple(options.PRESETS))] = "farflung"
    """Default settings for training: farflung's, which learn faster, or the paper's."""
    algorithm: Annotated[
        Derived[str],
        default_is(
            "pgpse; for networks: actor-critic, unless the paper's preset or a setting of pgpse is chosen",
            "{" + ",".join(options.ALGORITHMS) + "}|MODULE:NAME",
        ),
    ] = DERIVED
    """Training algorithm: policy gradient on the objective (pgpse), policy gradient on a learned discriminator of the agents
    (diayn), PPO with a critic for networks (actor-critic), or MODULE:NAME of your own."""
    objective: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(options.OBJECTIVES) + "}|WEIGHT*NAME+...|MODULE:NAME")] = (
        options.OBJECTIVE
    )
    """What the team maximises: the entropy of all its states (state), the mean entropy of each agent's own states (own), how
    well a state tells the agents apart (skills), the entropy of whole trajectories (trajectory), a weighted sum such as
    own+2*skills, or MODULE:NAME of your own."""
    updates: Annotated[Derived[int], from_preset("updates", "INT")] = DERIVED
    """Policy updates (N in the paper)."""
    credit: Annotated[Derived[str], from_preset("credit", "{" + ",".join(options.CREDITS) + "}|MODULE:NAME")] = DERIVED
    """Weight of an action in the gradient: the team's entropy (total, as in the paper), that minus the mean of the other batch
    elements (leave_one_out), what the agent's trajectory adds (difference), what the states after the action add (causal), or
    MODULE:NAME of your own function."""
    combinations: Annotated[Derived[int], default_is("1; networks: 4, or the batch size if it is less", "INT")] = DERIVED
    """Number of regroupings of the batch into teams to average the credit over; for the credits difference and causal."""
    optimizer: Annotated[Derived[str], from_preset("optimizer", "{" + ",".join(options.OPTIMIZERS) + "}")] = DERIVED
    """Gradient ascent, Adam, natural gradient, or natural gradient with a fixed KL divergence per step (trust-region)."""
    learning_rate: Annotated[Derived[options.Rate], default_is(_ALL_RATES, "FLOAT", float | None)] = DERIVED
    """Step size of the optimiser; with the optimiser trust-region, the KL divergence of a step in nats."""
    decay: Annotated[
        Derived[options.Rate], default_is("1; networks: a tenth of the rate is left at the end", "FLOAT", float | None)
    ] = DERIVED
    """Factor on the learning rate after each update (0.999 in the paper's text, 1 in its code)."""
    over_trajectories: Annotated[str, one_of(options.ESTIMATORS)] = options.ESTIMATORS[0]
    """Sum an agent's gradient over its trajectories (Algorithm 1 of the paper, and its code), or average it (its section 5)."""
    policy: Annotated[
        Derived[str],
        default_is("auto; paper preset: stationary; where states are vectors: neural", "{" + ",".join(options.POLICIES) + "}"),
    ] = DERIVED
    """A softmax table per agent (stationary) or per agent and time step (time-dependent); auto chooses by size. Where
    observations are vectors: a network per agent (neural), networks with a common trunk (shared-trunk), or one network that is
    told who acts by a learned vector per agent (conditioned)."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of a neural network."""
    std: Annotated[str, one_of(options.STDS)] = "free"
    """Standard deviation of the Gaussian policy of a neural network: a free parameter, or computed from the state."""
    init_std: float = 0.6
    """Initial standard deviation of the Gaussian policy, before tanh."""
    init_scale: Annotated[Derived[float], from_preset("init_scale", "FLOAT")] = DERIVED
    """Initial logits are uniform between minus and plus this number; in a network, a factor on the last layer's weights."""
    entropy_bonus: Annotated[Derived[float], from_preset("entropy_bonus", "FLOAT")] = DERIVED
    """Weight of a bonus for the entropy of the policies' actions, against early determinism."""
    bonus_decay: Annotated[Derived[float], default_is("1% of the bonus is left at the end; networks: 1", "FLOAT")] = DERIVED
    """Factor on the weight of the entropy bonus after each update."""
    steps_per_batch: Annotated[Derived[int], from_preset("steps_per_batch", "INT")] = DERIVED
    """Gradient steps per batch; after the first one, importance weights are clipped as in PPO."""
    minibatches: int = 4
    """Parts into which the actor-critic divides a batch at random; each gradient step takes the next part."""
    discount: float = 0.99
    """Factor of the actor-critic on the gain of a state for each step that it is away."""
    trace: float = 0.95
    """Lambda of the actor-critic's advantage estimates: 1 trusts the gains alone, less trusts the critic more."""
    warm_up: Annotated[Derived[float], default_is("0.1 if each agent has a network of its own, else 0", "FLOAT")] = DERIVED
    """Share of the updates in which the actor-critic trains all agents as one policy, from the data of all; in as many updates
    after that, they part: each also takes steps by its own data. 0: agents start different, and networks of their own never
    learn from the data of other agents."""
    clip: float = 0.2
    """Clip range of the importance weights when a batch is used for several gradient steps."""
    single: bool = False
    """Train the paper's baseline instead: one policy that plays the trajectories of all agents."""
    independent: bool = False
    """Train another baseline instead: each agent maximises the entropy of its own states."""
    stop_when_flat: bool = False
    """Stop early when the mean of the objective no longer grows."""
    seeds: tuple[int, ...] = options.PAPER_SEEDS
    """Random seeds: one independent training per seed, all in parallel."""
    log_every: Annotated[int | None, default_is("20 to 200 records, at most 1000 updates apart")] = None
    """Updates between two records of the metrics."""

    def __post_init__(self) -> None:
        given = [field.name for field in fields(self) if not _is_equal(getattr(self, field.name), field.default)]
        checks.check_text("world", self.world)
        for name in ("single", "independent", "stop_when_flat"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, not {getattr(self, name)!r}")
        checks.check_name("preset", self.preset, tuple(options.PRESETS))
        if self.world in options.CONTINUOUS_WORLDS:
            self._default("policy", "neural")
        is_for_pgpse = self.preset == "paper" or {*options.ONLY_FOR_PGPSE} & {*given}
        self._default("algorithm", options.ACTOR_CRITIC if self.is_neural and not is_for_pgpse else options.ALGORITHM)
        rates = options.NEURAL_LEARNING_RATES if self.is_neural else options.LEARNING_RATES
        if self.algorithm == options.ACTOR_CRITIC:
            rates = options.ACTOR_CRITIC_LEARNING_RATES
            for name, value in options.ACTOR_CRITIC_PRESET.items():
                self._default(name, value)
        for name, value in (options.NEURAL_PRESETS if self.is_neural else options.PRESETS)[self.preset].items():
            self._default(name, value)
        self._default("batch_size", options.BATCH_SIZE)
        is_actor_critic = self.algorithm == options.ACTOR_CRITIC
        most = min(self.batch_size, options.COMBINATIONS) if isinstance(self.batch_size, int) else 1
        self._default("combinations", max(most, 1) if is_actor_critic and self.is_neural and self.credit == "causal" else 1)
        learns_together = is_actor_critic and self.policy == "neural" and not self.independent
        self._default("warm_up", options.WARM_UP if learns_together else 0.0)
        checks.check_name("optimizer", self.optimizer, options.OPTIMIZERS)
        if self.optimizer not in rates:
            raise ValueError(f"{self.optimizer} is for tabular policies: train neural networks with {' or '.join(rates)}")
        self._default("learning_rate", rates[self.optimizer])
        checks.check_team_in_world(self)
        for name in ("batch_size", "updates", "log_every", "combinations", "steps_per_batch", "minibatches"):
            value = getattr(self, name)
            if value is not None or name != "log_every":
                object.__setattr__(self, name, checks.whole_number(name, value))
        self._default("bonus_decay", math.exp(-_BONUS_LEFT / self.updates))
        self._default("decay", _RATE_LEFT ** (1 / self.updates) if self.algorithm == options.ACTOR_CRITIC else 1.0)
        checks.check_learning(self)
        for name, known in (("algorithm", options.ALGORITHMS), ("credit", options.CREDITS)):
            checks.check_text(name, getattr(self, name))
            if ":" not in getattr(self, name):
                checks.check_name(name, getattr(self, name), known)
        self._check_objective()
        names_of = {"policy": options.POLICIES, "std": options.STDS, "over_trajectories": options.ESTIMATORS}
        for name, names in names_of.items():
            checks.check_name(name, getattr(self, name), names)
        if self.world in options.CONTINUOUS_WORLDS:
            self._check_no_table()
        if not isinstance(self.hidden, Iterable) or not tuple(self.hidden):
            raise ValueError(f"hidden must be the widths of one or more layers, not {self.hidden!r}")
        object.__setattr__(self, "hidden", tuple(checks.whole_number("hidden", width) for width in self.hidden))
        checks.check_positive("init_std", self.init_std)
        if not _LEAST_STD <= self.init_std <= _MOST_STD:
            raise ValueError(f"init_std must lie between {_LEAST_STD} and {_MOST_STD}, not {self.init_std}")
        if self.combinations > 1 and self.credit not in options.COMBINED_CREDITS:
            raise ValueError(f"combinations are for the credits {' and '.join(options.COMBINED_CREDITS)}, not {self.credit}")
        if self.combinations > self.batch_size:
            raise ValueError(f"combinations must be at most the batch size, {self.batch_size}, not {self.combinations}")
        if self.algorithm == options.ACTOR_CRITIC:
            self._check_actor_critic(given)
        if self.single and self.independent:
            raise ValueError("--single and --independent exclude each other")
        object.__setattr__(self, "seeds", checks.whole_seeds(self.seeds))
        for name in options.PER_SEED:
            if isinstance(values := getattr(self, name), Iterable):
                numbers = tuple(map(float, values))
                if len(numbers) != len(self.seeds):
                    raise ValueError(f"{name} needs one number, or one per seed ({len(self.seeds)}), not {len(numbers)}")
                object.__setattr__(self, name, numbers)
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("the seeds must differ from one another: equal seeds give equal runs")
        object.__setattr__(self, "given", {name: getattr(self, name) for name in given})

    def resolved(self, *, has_vectors: bool, knows_all_states: bool = True) -> "Explore":
        """The config for a world whose states are vectors or not: filled in with the defaults for that kind of world.

        Raises ValueError if a setting is for the other kind.

        Args:
            knows_all_states: whether the number of states is known; otherwise they are numbered as they are met.
        """
        if has_vectors and not self.is_neural:
            if "policy" in self.given:
                self._check_no_table()
            return Explore(**{**self.given, "policy": "neural"}).resolved(has_vectors=True)
        unused = {name for name in options.ONLY_FOR_ACTOR_CRITIC if self.given.get(name)}
        if self.algorithm == options.ALGORITHM and unused:
            raise ValueError(f"{' and '.join(sorted(unused))} are for the algorithm actor-critic, which trains networks")
        if has_vectors:
            return self
        if self.is_neural:
            raise ValueError(
                f"{self.world} has numbered states, which need tables: choose the policy {', '.join(('auto', *options.TABLES))}"
            )
        if self.algorithm == options.ACTOR_CRITIC:
            raise ValueError(f"actor-critic trains networks, and {self.world} has numbered states: choose the algorithm pgpse")
        for field in fields(self):
            if field.name in _FOR_NETWORKS and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"{field.name} is for networks, and {self.world} has numbered states, whose policies are tables"
                )
        if self.optimizer == "adam" and not knows_all_states and "learning_rate" not in self.given:
            return Explore(**{**self.given, "learning_rate": options.NOISY_LEARNING_RATE})
        return self

    def of_seed(self, row: int) -> "Explore":
        """The config of one seed, where a setting has one number per seed."""
        own = {name: getattr(self, name)[row] for name in options.PER_SEED if isinstance(getattr(self, name), tuple)}
        return replace(self, seeds=self.seeds[row : row + 1], **own) if own else self

    def as_json(self) -> dict[str, Any]:
        """The settings for a file; those that older versions don't know only if they are not the default ones."""
        defaults: dict[str, Any] = {
            "algorithm": options.ALGORITHM,
            "objective": options.OBJECTIVE,
            "over_trajectories": options.ESTIMATORS[0],
        }
        defaults |= {field.name: field.default for field in fields(self) if field.name in options.ONLY_FOR_ACTOR_CRITIC}
        defaults["warm_up"] = 0.0
        return {name: value for name, value in asdict(self).items() if name not in defaults or value != defaults[name]}

    @property
    def world_name(self) -> str:
        """A name for the world that can be part of a path."""
        return Path(self.world).stem if checks.is_map_file(self.world) else re.sub("[/:]", "-", self.world)

    @property
    def name(self) -> str:
        """A name for a run, from the world and the size of the team."""
        return f"{self.world_name}-{self.agents}-{'single' if self.single else 'agents'}"

    @property
    def command(self) -> str:
        """The command line that trains with these settings, in a world without options of its own; see `command_in`."""
        return self.command_in(())

    def command_in(self, arguments: Sequence[str]) -> str:
        """The command line that trains with these settings, in a world that is made with these arguments.

        If a command can't name the world or a part of the algorithm, since it was given as an object: the call in Python.
        """
        chosen = {name: getattr(self, name) for name in ("preset", "algorithm", "updates", "optimizer")}
        usual = Explore(self.world, policy="neural" if self.is_neural else "auto", **chosen)
        plain = Explore(self.world, policy=usual.policy, preset=self.preset)
        words, chosen_here = ["farflung", "explore", self.world], {}
        for field in fields(self)[1:]:
            value, default = getattr(self, field.name), getattr(usual, field.name)
            if field.name in chosen:
                default = field.default if field.name == "preset" else getattr(plain, field.name)
            if value != default:
                chosen_here[field.name] = value
                values = value if isinstance(value, tuple) else () if value is True else (value,)
                words += [f"--{field.name.replace('_', '-')}", *map(str, values)]
        objects = {field.name: value for field in fields(self) if _is_object(value := getattr(self, field.name))}
        if objects:
            given = {name: name if name in objects else repr(value) for name, value in chosen_here.items()}
            world = "world" if "world" in objects else repr(self.world)
            call = f"farflung.explore({', '.join([world, *(f'{name}={value}' for name, value in given.items())])})"
            return f"{call}  # {', '.join(f'{name}: {value}' for name, value in objects.items())}"
        if self.horizon is not None and "--horizon" in arguments:
            at = arguments.index("--horizon")
            arguments = [*arguments[:at], *arguments[at + 2 :]]
        return shlex.join([*words, *arguments])

    @property
    def num_policies(self) -> int:
        """One per agent, or a single one that plays the trajectories of all agents."""
        return 1 if self.single else self.agents

    @property
    def trajectories_per_policy(self) -> int:
        return self.trajectories * self.agents // self.num_policies

    @property
    def is_neural(self) -> bool:
        return self.policy in options.NETWORKS

    def _default(self, name: str, value: Any) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    def _check_actor_critic(self, given: Iterable[str]) -> None:
        if self.credit != "causal" or {*options.ONLY_FOR_PGPSE} & {*given} - {"credit"}:
            raise ValueError(
                "actor-critic has the credit causal and averages over trajectories: "
                "for another credit or for over_trajectories, choose the algorithm pgpse"
            )
        if self.warm_up and self.independent:
            raise ValueError("independent agents learn from their own data alone: leave out warm_up")

    def _check_objective(self) -> None:
        checks.check_text("objective", self.objective)
        if self.algorithm == "diayn" and (self.objective != options.OBJECTIVE or self.independent or self.num_policies < 2):
            raise ValueError("diayn has its own objective, for at least 2 policies that learn together: leave out the others")
        if ":" in self.objective:
            return
        terms = options.objective_terms(self.objective)
        if self.independent and self.objective != options.OBJECTIVE:
            raise ValueError("--independent maximises each agent's own entropy of states: leave out --objective")
        if "skills" in terms and self.num_policies < 2:
            raise ValueError("the objective skills tells agents apart: it needs at least 2 policies")
        if "trajectory" in terms and self.trajectories * self.agents < 2:
            raise ValueError("the objective trajectory needs at least 2 trajectories: choose more agents or trajectories")

    def _check_no_table(self) -> None:
        if self.policy in options.TABLES:
            raise ValueError(
                f"the states of {self.world} are vectors: its policies are {' or '.join(options.NETWORKS)}, not tables"
            )


def _is_equal(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default  # arrays of NumPy compare element by element


def arguments_for(**options: Any) -> tuple[str, ...]:
    """The arguments of the command line that give a world these options; those that only Python has, functions, are left out.

    >>> arguments_for(observe=("agent_pos", "agent_dir"), horizon=None, hosted=True, env_options={"size": 5, "mode": "a"})
    ('--observe', 'agent_pos', 'agent_dir', '--hosted', '--env-options', 'size=5', 'mode=a')
    """
    words: list[str] = []
    for name, value in options.items():
        if value is None or value is False or callable(value) or (isinstance(value, Mapping) and not value):
            continue
        values: list[str] = []
        if isinstance(value, Mapping):
            values = [f"{key}={_said(each)}" for key, each in value.items()]
        elif value is not True:
            values = [*map(str, value)] if isinstance(value, Iterable) and not isinstance(value, str) else [str(value)]
        words += [f"--{name.replace('_', '-')}", *values]
    return tuple(words)


def _said(value: Any) -> str:
    """A value as `--env-options` reads it: text as it is, unless it looks like JSON."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value
    return json.dumps(value, default=str)


@dataclass(frozen=True)
class WorldOptions:
    """Options for Gymnasium environments and for worlds whose states are vectors."""

    hosted: bool = False
    """Call the environment's own step() although it has a transition table. Much slower."""
    observe: Annotated[tuple[str, ...] | None, default_is("the observation", "NAME [NAME ...]")] = None
    """What replaces the observation of a Gymnasium environment: entries of its dictionary, attributes of the environment (such
    as MiniGrid's agent_pos and agent_dir), or pixels, its rendered frame."""
    env_options: Annotated[tuple[str, ...] | None, default_is("none", "KEY=VALUE [KEY=VALUE ...]")] = None
    """Keyword arguments for gymnasium.make, for the environment of a JAX suite (layout=random draws a new layout in each
    episode), or for a robot such as ant; each value is read as JSON or, failing that, as text."""
    copies: int = 64
    """Copies of a Gymnasium environment that are stepped together in one process."""
    workers: int = 0
    """Worker processes, at most 32 per CPU core, each with its own copy of a slow Gymnasium environment; 0 uses none."""
    timeout: float = 60.0
    """Seconds without a response after which a worker process is restarted."""
    features: Annotated[
        tuple[str, ...] | None, default_is("all numbers of up to 3, else the first two; encoder for images", "NAME [NAME ...]")
    ] = None
    """Numbers whose entropy is maximised, where that is not all that policies see: names or indices (from 0) of numbers in an
    observation, names of attributes of a Gymnasium environment, MODULE:NAME of a function of the state, or encoder, the space
    of a fixed random network."""
    neighbours: Annotated[int | None, default_is("4, or the named world's own")] = None
    """k of the k-nearest-neighbour entropy estimate where states are vectors; 0 counts grid cells instead."""
    bins: Annotated[tuple[int, ...] | None, default_is("20 where states are vectors", "INT [INT ...]")] = None
    """Grid cells per feature. If actions are discrete and neither --features nor --neighbours is given, each cell is a state
    and policies are tables."""
    low: Annotated[
        tuple[float, ...] | None,
        default_is("the space's lower bounds; without bounds, three times the range of random actions", "FLOAT [FLOAT ...]"),
    ] = None
    """Lower bounds of the grid, per feature."""
    high: Annotated[
        tuple[float, ...] | None,
        default_is("the space's upper bounds; without bounds, three times the range of random actions", "FLOAT [FLOAT ...]"),
    ] = None
    """Upper bounds of the grid, per feature."""

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}


def _is_object(value: Any) -> bool:
    """Whether a setting stands for an object that was given and has no name to be found by."""
    return isinstance(value, str) and value.partition(":")[0] == "custom"
