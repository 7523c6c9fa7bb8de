"""Settings of all commands but `farflung explore`."""

import itertools
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import tyro

from farflung.config import checks, options
from farflung.config.options import DERIVED, Derived, default_is, one_of

RunPath = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
_MOST_FPS = 100
"""GIFs count hundredths of a second."""
WorldAgain = Annotated[str | None, default_is("the world that the run names", "MODULE:NAME")]


@dataclass(frozen=True)
class _OfRun:
    run: RunPath
    """Directory of a run."""
    world: WorldAgain = None
    """Name the world again if its module lies in the current folder and the run came from you."""


@dataclass(frozen=True)
class Resume(_OfRun):
    """Continue an interrupted training with its original settings.

    RUN is the directory that `farflung explore` was writing. On the same kind of device, the result is bit for bit the same as
    without the interruption.
    """


@dataclass(frozen=True)
class Collect(_OfRun):
    """Play episodes with a trained team and save them as a dataset for offline RL.

    RUN is a directory that `farflung explore` has written. The agents take turns, one episode each.
    """

    episodes: int = 1000
    """Episodes in the dataset."""
    dataset: Annotated[str | None, default_is("farflung/NAME-v0, with the name of the run's directory", "ID")] = None
    """Id of the dataset in Minari."""
    format: Annotated[str, one_of(options.DATA_FORMATS)] = "minari"
    """A Minari dataset of HDF5 or of Arrow files, or one file: NumPy's npz, Parquet, or HDF5 for d3rlpy's MDPDataset."""
    seed: Annotated[int | None, default_is("the one with the median final entropy")] = None
    """Seed of the run whose trained team plays."""
    random_seed: int = 0
    """Random seed for actions and transitions; the same seed gives the same data."""
    random: bool = False
    """Play random actions instead of the team's, for comparison."""
    epsilon: float = 0.0
    """Probability of a random action in place of the team's, so that the dataset covers more actions in each state."""
    temperature: float = 1.0
    """Above 1, the team's policies are flatter: action probabilities are raised to 1/temperature and normalised."""
    checkpoints: Annotated[int | None, default_is("the trained team only")] = None
    """Stages of training, from the untrained to the trained team, that take turns, as in a replay buffer. Trains again."""
    goal: Annotated[tuple[float, ...], default_is("none: the world's own rewards, if it has any", "NUMBER ...")] = ()
    """Goal with reward 1 at which episodes end: row and column in a map, an observation, or features such as x and y."""
    goal_radius: Annotated[float | None, default_is("the size of a step in a point maze", "FLOAT")] = None
    """Distance at which a state that is a vector counts as the goal. Features are divided by their typical difference before
    distances are measured: the width of the grid for Gymnasium environments, 1 in mazes and for robots."""
    reward: Annotated[str | None, default_is("the world's own rewards, if it has any", "MODULE:NAME")] = None
    """Function of observations, actions and next observations (arrays with a row per step) that returns the rewards."""
    author: Annotated[str | None, default_is("none", "NAME")] = None
    """Author, for the metadata of a Minari dataset."""
    author_email: Annotated[str | None, default_is("none", "EMAIL")] = None
    """Author's e-mail address, for the metadata of a Minari dataset."""
    code_permalink: Annotated[str | None, default_is("none", "URL")] = None
    """Link to the code that made the dataset, for the metadata of a Minari dataset."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "episodes", checks.whole_number("episodes", self.episodes))
        checks.check_name("format", self.format, options.DATA_FORMATS)
        if self.dataset is not None:
            check_dataset_id(self.dataset)
        checks.whole_seeds([self.random_seed] if self.seed is None else [self.random_seed, self.seed])
        if self.goal_radius is not None:
            checks.check_positive("goal_radius", self.goal_radius)
            if not self.goal:
                raise ValueError("goal_radius needs a goal: give one with --goal")
        checks.check_playing(self.random, self.epsilon, self.temperature, self.checkpoints)
        if self.reward is not None:
            checks.check_function("reward", self.reward)
            if self.goal:
                raise ValueError("a dataset has either a goal or a reward function, not both")
        for name in ("author", "author_email", "code_permalink"):
            if getattr(self, name) is not None:
                checks.check_text(name, getattr(self, name))
                if not self.format.startswith("minari"):
                    raise ValueError(f"{name} is for Minari datasets, not for the format {self.format}")


@dataclass(frozen=True)
class Transfer(_OfRun):
    """Learn a task that a team has never seen, from what its exploration has left: the result is a run with one policy.

    RUN is a directory that `farflung explore` has written. Every agent plays a few episodes of the task, which are counted; the
    ranking is printed, and the best agent is where learning starts.
    """

    reward: Annotated[str | None, default_is("--goal", "environment|MODULE:NAME")] = None
    """What pays: the environment's own rewards (environment), or a function of observations, actions and next observations
    (arrays with a row per step)."""
    goal: Annotated[tuple[float, ...], default_is("--reward", "NUMBER ...")] = ()
    """Goal with reward 1 at which episodes end: row and column in a map, an observation, or features such as x and y."""
    goal_radius: Annotated[float | None, default_is("the size of a step in a point maze", "FLOAT")] = None
    """Distance at which a state that is a vector counts as the goal. Features are divided by their typical difference before
    distances are measured: the width of the grid for Gymnasium environments, 1 in mazes and for robots."""
    method: Annotated[str, one_of(options.TRANSFERS)] = options.TRANSFERS[0]
    """finetune: PPO from the best agent's policy; guide: PPO from a new policy, for which the best agent takes the first
    actions of each episode, fewer and fewer; offline: Q-learning (tables) or advantage-weighted regression (networks) from
    episodes of the whole team; scratch: PPO from a new policy, to compare with."""
    seed: Annotated[int | None, default_is("the one with the median final entropy")] = None
    """Seed of the run whose team is used."""
    episodes: Annotated[int | None, default_is("10; offline: 50")] = None
    """Episodes of each agent: those by which the best one is chosen, and from which offline learns."""
    updates: Annotated[int | None, default_is("100; offline: none after learning from the episodes")] = None
    """Policy updates of PPO."""
    batch_size: int = 16
    """Episodes per update."""
    learning_rate: Annotated[float | None, default_is("0.1 tables, 0.001 networks", "FLOAT")] = None
    """Step size of Adam."""
    entropy_bonus: float = 0.01
    """Weight of a bonus for the entropy of the policy's actions, against early determinism."""
    intrinsic: float = 0.0
    """Weight of the world's own entropy gains, of standard deviation 1, beside the task's rewards; it decays to 1%."""
    discount: float = 0.99
    """Discount factor."""
    batches: int = 5000
    """offline: minibatches to learn from."""
    seeds: tuple[int, ...] = (0,)
    """Random seeds, with one independent learning each."""

    def __post_init__(self) -> None:
        if (self.reward is None) == (not self.goal):
            raise ValueError("a task is either a goal or a reward: give one of --goal and --reward")
        if not all(map(math.isfinite, self.goal)):
            raise ValueError(f"goal must be finite numbers, not {' '.join(f'{number:g}' for number in self.goal)}")
        if self.reward not in (None, "environment"):
            checks.check_function("reward", self.reward)
        if self.goal_radius is not None:
            checks.check_positive("goal_radius", self.goal_radius)
            if not self.goal:
                raise ValueError("goal_radius needs a goal: give one with --goal")
        checks.check_name("method", self.method, options.TRANSFERS)
        for name in ("episodes", "updates", "batch_size", "batches"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checks.whole_number(name, getattr(self, name)))
        if self.learning_rate is not None:
            checks.check_positive("learning_rate", self.learning_rate)
        for name in ("entropy_bonus", "intrinsic"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number, 0 or above, not {getattr(self, name)}")
        checks.check_share("discount", self.discount)
        object.__setattr__(self, "seeds", checks.whole_seeds(self.seeds))

    @property
    def num_episodes(self) -> int:
        """Episodes of each agent."""
        return self.episodes or (50 if self.method == "offline" else 10)

    @property
    def task(self) -> str:
        """The task in words."""
        return f"goal {' '.join(f'{number:g}' for number in self.goal)}" if self.goal else f"reward {self.reward}"

    @property
    def command(self) -> str:
        """The command line of these settings."""
        words = ["farflung", "transfer", self.run]
        for field in fields(self):
            if field.name != "run" and (value := getattr(self, field.name)) != field.default:
                values = value if isinstance(value, tuple) else (value,)
                words += [f"--{field.name.replace('_', '-')}", *(str(each).removesuffix(".0") for each in values)]
        return shlex.join(words)


_OFFLINE_DEFAULTS: dict[tuple[str, bool], dict[str, Any]] = {
    ("goals", False): {"method": "q-learning", "batches": 100, "batch_size": 20, "learning_rate": 0.1, "max_steps": 200},
    ("goals", True): {
        "method": "iql",
        "batches": 2000,
        "batch_size": 64,
        "learning_rate": 0.003,
        "max_steps": 200,
        "goals": 36,
    },
    ("rewards", False): {"method": "q-learning", "batches": 2000, "batch_size": 20, "learning_rate": 0.1},
    ("rewards", True): {"method": "iql", "batches": 5000, "batch_size": 256, "learning_rate": 0.001, "sharpness": 10.0},
}
"""Defaults of `farflung offline`, by the task and by whether states are vectors; for goals in tables, the paper's."""
_GOALS_ONLY, _REWARDS_ONLY = ("goals", "goal_radius"), ("reference", "reward", "sharpness")


@dataclass(frozen=True)
class OfflineLearning:
    """Learn from a dataset, from its rewards or to reach every state, and report how well that works.

    DATASET is the id of a Minari dataset, or an .npz or .parquet file that `farflung collect` has written. If the dataset has
    rewards, a policy is learnt from them and tested in the dataset's environment. Otherwise, a policy is learnt for each goal:
    every state of a table, or goals spread over a point maze.
    """

    dataset: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATASET")]
    """Id of a Minari dataset, or a file."""
    task: Annotated[Derived[str], default_is("rewards if the dataset has any, else goals", "{goals,rewards}")] = DERIVED
    """What to learn: to reach every goal, or to collect the dataset's rewards."""
    method: Annotated[Derived[str], default_is("q-learning; for networks iql", "{" + ",".join(options.METHODS) + "}")] = DERIVED
    """q-learning: tables; iql: implicit Q-learning; td3-bc: TD3+BC, for actions that are vectors; bc: behaviour cloning."""
    reward: Annotated[str | None, default_is("the dataset's rewards", "MODULE:NAME")] = None
    """Function of observations, actions and next observations (arrays with a row per step) that returns the rewards."""
    world: Annotated[str | None, default_is("the environment that the dataset names", "MODULE:ID")] = None
    """Name the environment again if its module lies in the current folder and the dataset came from you."""
    reference: Annotated[
        float | None,
        default_is("the best possible, or the environment's threshold, if known", "FLOAT"),
    ] = None
    """Mean return that counts as a score of 1, for example that of an expert; the score of random actions is 0."""
    batches: Annotated[Derived[int], default_is("goals 100, rewards 2000; networks: goals 2000, rewards 5000")] = DERIVED
    """Minibatches to learn from, for each policy."""
    batch_size: Annotated[Derived[int], default_is("20; networks: goals 64, rewards 256")] = DERIVED
    """Transitions in a minibatch, drawn with replacement."""
    learning_rate: Annotated[Derived[float], default_is("0.1; for networks 0.003 with goals, 0.001 with rewards", "FLOAT")] = (
        DERIVED
    )
    """Step size of tabular Q-learning, or the initial step size of Adam for networks, which decays to 0."""
    sharpness: Annotated[Derived[float], default_is("10", "FLOAT")] = DERIVED
    """iql with rewards: the policy imitates an action with the weight exp(sharpness x advantage)."""
    discount: float = 0.99
    """Discount factor."""
    attempts: int = 10
    """Episodes in which each policy is tested."""
    max_steps: Annotated[Derived[int], default_is("200 with goals; with rewards the environment's limit")] = DERIVED
    """Maximum number of actions in a test episode."""
    goals: Annotated[Derived[int], default_is("36")] = DERIVED
    """Approximate number of goals in a point maze, at the centres of equal grid cells."""
    goal_radius: Annotated[float | None, default_is("half the size of a grid cell between goals", "FLOAT")] = None
    """Distance at which a goal in a point maze counts as reached."""
    seeds: tuple[int, ...] = options.PAPER_SEEDS
    """Random seeds, with one independent repetition of all learning each."""

    def __post_init__(self) -> None:
        for name in ("batches", "batch_size", "attempts", "max_steps", "goals"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checks.whole_number(name, getattr(self, name)))
        for name in ("learning_rate", "goal_radius", "sharpness"):
            if getattr(self, name) is not None:
                checks.check_positive(name, getattr(self, name))
        for name, known in (("task", options.TASKS), ("method", options.METHODS)):
            if getattr(self, name) is not None:
                checks.check_name(name, getattr(self, name), known)
        if self.reward is not None:
            checks.check_function("reward", self.reward)
        checks.check_share("discount", self.discount)
        object.__setattr__(self, "seeds", checks.whole_seeds(self.seeds))

    def resolved(self, *, has_vectors: bool, has_rewards: bool) -> "OfflineLearning":
        """The config for a dataset, filled in with the defaults for its kind."""
        task = self.task or ("rewards" if has_rewards else "goals")
        if task == "rewards" and not has_rewards:
            raise ValueError("the dataset has no rewards: collect it with --goal, or give rewards with --reward MODULE:NAME")
        for name in _GOALS_ONLY if task == "rewards" else _REWARDS_ONLY:
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is for the task {'goals' if task == 'rewards' else 'rewards'}, not for {task}")
        if task == "goals" and not has_vectors:
            for name in _GOALS_ONLY:
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is for mazes: the dataset has finitely many states, of which each is a goal")
        defaults = _OFFLINE_DEFAULTS[task, has_vectors]
        kinds = ("iql", "td3-bc", "bc") if has_vectors else ("q-learning", "bc")
        known = kinds if task == "rewards" else (defaults["method"],)
        if self.method is not None and self.method not in known:
            states = "vectors" if has_vectors else "numbers"
            raise ValueError(f"where states are {states}, {task} are learnt by {' or '.join(known)}, not by {self.method}")
        given = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return replace(self, task=task, **given)


@dataclass(frozen=True)
class Compare:
    """Compare runs over all their worlds and seeds, with the estimates and intervals of rliable.

    RUN is a directory that `farflung explore` or `farflung offline` has written, or NAME=DIRECTORY; runs of one name are one
    algorithm in several worlds. Without names, runs with the same settings are one algorithm.
    """

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="")]
    """Directories of runs, all as NAME=DIRECTORY or none."""
    metric: Annotated[
        str | None,
        default_is(
            "normalized_entropy; offline: success, score or return, as there is",
            "{" + ",".join((*options.METRICS, *options.OFFLINE_METRICS)) + "}",
        ),
    ] = None
    """Score of a run, averaged over the last 1% of the updates; or of an offline result. Higher is better."""

    def __post_init__(self) -> None:
        if self.metric is not None:
            checks.check_name("metric", self.metric, (*options.METRICS, *options.OFFLINE_METRICS))
        if not self.runs:
            raise ValueError("at least 2 runs are needed for a comparison, not 0")


@dataclass(frozen=True)
class View:
    """Look at runs in the browser: curves, a slider over training, and episodes that play.

    Each RUN is a directory that `farflung explore` has written or is still writing to, or a folder of such directories. Several
    runs are shown side by side; a folder is shown as a table. A training in progress is updated live. The page is served to
    this machine only, until Ctrl-C.
    """

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="")]
    """Directories of runs, or a folder of runs."""
    port: int = 0
    """Port on this machine; 0 takes a free one."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("at least one run is needed: farflung view RUN")
        if isinstance(self.port, bool) or not isinstance(self.port, int) or not 0 <= self.port <= 65_535:
            raise ValueError(f"port must be a whole number from 0 to 65535, not {self.port!r}")


@dataclass(frozen=True)
class Film(_OfRun):
    """Film a trained team: all agents move over the map, and the cells that they have visited light up.

    RUN is a directory that `farflung explore` has written, in a world that is a map, whose states are vectors, or that renders.
    """

    element: int = 0
    """Index of the batch element to show, from 0 on."""
    seconds: float = 8.0
    """Maximum length of the film in seconds."""
    fps: int = 12
    """Maximum number of frames per second, up to 100; a film has at most one frame per step of an episode."""
    rendered: bool = False
    """Show what the Gymnasium environment itself (rgb_array), or a robot's simulator, renders for each agent, not a map."""
    training: bool = False
    """Show how the team learns: an episode at each of several moments of its training."""

    def __post_init__(self) -> None:
        if self.training and self.rendered:
            raise ValueError("--training and --rendered exclude each other: frames of earlier moments are not kept")
        if not isinstance(self.element, int) or not 0 <= self.element <= checks.MOST:
            raise ValueError(f"element must be a whole number from 0 to {checks.MOST}, not {self.element!r}")
        checks.check_positive("seconds", self.seconds)
        object.__setattr__(self, "fps", checks.whole_number("fps", self.fps, _MOST_FPS))


def check_dataset_id(name: str) -> None:
    """Raises ValueError unless Minari accepts the name as the id of a dataset."""
    if not re.fullmatch(r"([-\w]{2,}/)*[-\w]+-v\d+", name):
        raise ValueError(f"a dataset's id looks like farflung/maze-v0 or maze-v0, not {name!r}")


@dataclass(frozen=True)
class _TeamInWorld:
    world: options.World
    """Name of one of the paper's worlds, path of a map, or id of a Gymnasium environment with a transition table."""
    agents: int = 6
    """Agents in the team (m in the paper)."""
    horizon: options.Horizon = None
    """Actions in an episode (T in the paper)."""
    slip: options.Slip = None
    """Probability that one of the other actions replaces the chosen one; only for maps."""


@dataclass(frozen=True)
class CeilingOptions(_TeamInWorld):
    """Compute an upper bound on the entropy, or another objective, of any team in a world, with a certificate."""

    objective: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(options.OBJECTIVES) + "}|WEIGHT*NAME+...|MODULE:NAME")] = (
        options.OBJECTIVE
    )
    """What the team maximises, as in farflung explore; MODULE:NAME must be a concave farflung.Utility."""
    trajectories: int = 1
    """Trajectories of each agent that are pooled (K in the paper)."""
    method: Annotated[str, one_of(options.CEILING_METHODS)] = "auto"
    """milp: exact, for deterministic worlds; lp: an upper bound; frank-wolfe: for worlds of any size; auto: by size."""
    time_limit: float = 60.0
    """Seconds after which the computation stops with the best bound so far."""
    tolerance: float = 1e-3
    """Relative gap to the optimum at which the method frank-wolfe stops."""

    def __post_init__(self) -> None:
        checks.check_team_in_world(self)
        checks.check_name("method", self.method, options.CEILING_METHODS)
        checks.check_text("objective", self.objective)
        if ":" not in self.objective:
            options.objective_terms(self.objective)
        for name in ("time_limit", "tolerance"):
            checks.check_positive(name, getattr(self, name))


@dataclass(frozen=True)
class FrankWolfeRun(_TeamInWorld):
    """Maximise the entropy in the limit of infinitely many samples, by Parallel Frank-Wolfe (Algorithm 2 of the paper).

    The duality gap certifies how far the team is from the optimum.
    """

    agents: int = 4
    """Agents, each with its own mixture of policies (N in Algorithm 2)."""
    plan: Annotated[str, one_of(options.PLANS)] = "in-turn"
    """together: all agents plan for the same mixture, as in the paper; in-turn: each plans after the previous one's update."""
    step_size: Annotated[float | None, default_is("the best at each iteration", "FLOAT")] = None
    """Weight of a new policy in the mixture of its agent."""
    iterations: int = 20_000
    """Maximum number of iterations."""
    tolerance: float = 1e-3
    """Duality gap, in nats, at which to stop."""
    theorem: Annotated[float | None, default_is("--step-size and --iterations", "FLOAT")] = None
    """Error for which the theorem "Convergence Rate" sets step size, iterations and tolerances. Requires --smoothing."""
    smoothing: float = 0.0
    """Constant added to each probability inside the entropy (sigma), which bounds the gradient."""
    density_tolerance: Annotated[Derived[float], default_is("0, or --theorem's", "FLOAT")] = DERIVED
    """Error of the estimated state distribution (epsilon_0); 0 computes it exactly. Requires --smoothing."""
    planning_tolerance: Annotated[Derived[float], default_is("0, or --theorem's", "FLOAT")] = DERIVED
    """Suboptimality of plans in an estimated model (epsilon_1); 0 plans exactly. Requires --smoothing."""
    compare: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Team sizes to compare with each other and with the theorem's rate."""
    compare_step: float = 0.05
    """Constant step size in the comparison of team sizes."""
    compare_iterations: int = 1500
    """Iterations in the comparison of team sizes."""
    seed: int = 0
    """Random seed for estimated state distributions and plans."""

    def __post_init__(self) -> None:
        checks.check_team_in_world(self)
        for number in (*self.compare, self.iterations, self.compare_iterations):
            checks.whole_number("a number of agents or iterations", number)
        checks.check_name("plan", self.plan, options.PLANS)
        checks.check_positive("tolerance", self.tolerance)
        object.__setattr__(self, "seed", checks.whole_seeds([self.seed])[0])
        if self.theorem is not None:
            checks.check_positive("theorem", self.theorem)
            if self.smoothing == 0:
                raise ValueError("--theorem needs a smooth entropy: give a --smoothing above 0, such as 0.001")
        # The theorem asks for 0.1 ε / β and 0.1 ε, and the smoothing is 1 / β.
        error = 0.0 if self.theorem is None else 0.1 * self.theorem
        for name, tolerance in (("density_tolerance", error * self.smoothing), ("planning_tolerance", error)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, tolerance)
        checks.check_frank_wolfe(self)
        checks.check_share("compare_step", self.compare_step)
        if len(set(self.compare)) < len(self.compare):
            raise ValueError("the team sizes to compare must differ from one another")


@dataclass(frozen=True)
class Concentration(_TeamInWorld):
    """Compare Theorem 4.1 with the number of samples that are needed to see the entropy of a team and of a single agent."""

    world: options.World = "maze-det"
    agents: int = 6
    """Agents in the team, and trajectories of the single agent (m in the paper)."""
    updates: int = 10_000
    """Policy updates of each training (N in the paper)."""
    seeds: tuple[int, ...] = options.PAPER_SEEDS
    """Random seeds, with one independent training each."""
    epsilons: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5)
    """Errors in nats: how far the entropy of the samples may lie below the true one."""
    delta: float = 0.05
    """Allowed probability of a larger error."""
    draws: int = 2000
    """Repetitions from which each probability is estimated."""
    most_samples: int = 10_000
    """Maximum number of samples in a repetition."""
    objective: Annotated[str, one_of(("state", "trajectory"))] = options.OBJECTIVE
    """Distribution to draw samples from: of states, or of whole trajectories, of which there may be 2,000."""

    def __post_init__(self) -> None:
        checks.check_team_in_world(self)
        checks.check_name("objective", self.objective, ("state", "trajectory"))
        for name in ("updates", "draws", "most_samples"):
            checks.whole_number(name, getattr(self, name))
        if self.most_samples < self.agents:
            raise ValueError(f"most_samples must be at least the number of agents, {self.agents}, not {self.most_samples}")
        if not self.epsilons:
            raise ValueError("at least one epsilon is needed")
        for epsilon in self.epsilons:
            checks.check_positive("epsilon", epsilon)
        checks.check_probability("delta", self.delta)
        object.__setattr__(self, "seeds", checks.whole_seeds(self.seeds))


@dataclass(frozen=True)
class Objectives:
    """Train a team on each of several objectives, and measure what each gives by all of them: entropies, coverage, skills.

    Results are a table, and figures: states against trajectories, and what the agents can do as skills.
    """

    worlds: Annotated[tuple[str, ...], tyro.conf.arg(metavar="WORLD [WORLD ...]")] = options.PAPER_WORLDS
    """Worlds to train in, as in farflung explore; compiled ones only."""
    train: Annotated[tuple[str, ...], tyro.conf.arg(metavar="OBJECTIVE|diayn|untrained ...")] = (
        *("state", "trajectory", "skills", "own", "own+3*skills", "state+0.1*trajectory", "diayn", "untrained"),
    )
    """Objectives to train on, as in farflung explore; diayn: a learned discriminator; untrained: teams as they begin."""
    agents: int = 6
    """Agents in each team (m in the paper)."""
    trajectories: int = 1
    """Trajectories that each agent plays per batch element (K in the paper)."""
    batch_size: int = 40
    """Batch elements per update (B in the paper)."""
    horizon: options.Horizon = None
    """Actions in an episode (T in the paper)."""
    updates: int = 500
    """Policy updates of each training (N in the paper)."""
    episodes: int = 200
    """Episodes of each agent by which a trained team is measured; half of them choose and half of them judge."""
    seeds: tuple[int, ...] = options.PAPER_SEEDS[:3]
    """Random seeds, with one independent training each."""

    def __post_init__(self) -> None:
        for name in ("agents", "trajectories", "batch_size", "updates", "episodes"):
            checks.whole_number(name, getattr(self, name))
        if self.agents < 2 or self.episodes < 2:
            raise ValueError("agents and episodes must be at least 2: agents are told apart, and half of the episodes judge")
        object.__setattr__(self, "seeds", checks.whole_seeds(self.seeds))
        if not self.worlds or not self.train:
            raise ValueError("at least one world and one objective are needed")
        for name in self.train:
            if name not in ("diayn", "untrained"):
                options.objective_terms(name)


@dataclass(frozen=True)
class _Suite:
    worlds: Annotated[tuple[str, ...], one_of(options.PAPER_WORLDS, is_repeated=True)] = options.PAPER_WORLDS
    """Worlds of the paper to train in."""
    agents: tuple[int, ...] = (2, 6)
    """Numbers of agents in a team (m in the paper)."""
    seeds: int = 10
    """Number of random seeds: the paper's 0, 1, 2, 42, 133 first, then others."""

    def _check(self, counts: Sequence[str], preview: dict[str, Any], *, is_preview: bool) -> None:
        """Replaces settings by those of the preview if it is one, and checks the worlds, the team sizes and the counts."""
        for name, value in preview.items() if is_preview else ():
            object.__setattr__(self, name, value)
        for name in ("worlds", "agents"):
            values = checks.several(name, getattr(self, name))
            object.__setattr__(self, name, values)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be one or more, all different")
        for world in self.worlds:
            checks.check_name("world", world, options.PAPER_WORLDS)
        for number in self.agents:
            checks.whole_number("agents", number)
        for name in counts:
            checks.whole_number(name, getattr(self, name))

    @property
    def seed_values(self) -> tuple[int, ...]:
        """The paper's seeds, then others."""
        others = (seed for seed in range(self.seeds + len(options.PAPER_SEEDS)) if seed not in options.PAPER_SEEDS)
        return tuple(itertools.islice(itertools.chain(options.PAPER_SEEDS, others), self.seeds))


@dataclass(frozen=True)
class Reproduce(_Suite):
    """Run every experiment of the paper again and write one page with the figures and a verdict on each claim.

    The same command continues after an interruption.
    """

    agents: tuple[int, ...] = (2, 4, 6)
    seeds: int = 5
    updates: int = 10_000
    """Policy updates of each training (N in the paper)."""
    datasets: int = 6
    """Datasets per seed for offline learning; the paper has one, more give means with less noise."""
    schedule: Annotated[str, one_of((*options.SCHEDULES, "both"))] = "both"
    """Learning rate: constant 0.15, as in the paper's code; 0.1 with decay 0.999, as in the paper's text; or both."""
    estimator: Annotated[str, one_of((*options.ESTIMATORS, "both"))] = "both"
    """Gradient of the single agent: summed over its trajectories, as in the paper's code; averaged, as in its text; or both."""
    quick: bool = False
    """Preview with room-det and maze-stoc, 6 agents, and only the learning rate and the estimator of the paper's code."""

    def __post_init__(self) -> None:
        preview = {"worlds": ("room-det", "maze-stoc"), "agents": (6,), "schedule": "code", "estimator": "sum"}
        self._check(("seeds", "updates", "datasets"), preview, is_preview=self.quick)
        checks.check_name("schedule", self.schedule, (*options.SCHEDULES, "both"))
        checks.check_name("estimator", self.estimator, (*options.ESTIMATORS, "both"))

    @property
    def schedules(self) -> tuple[str, ...]:
        return tuple(options.SCHEDULES) if self.schedule == "both" else (self.schedule,)

    @property
    def estimators(self) -> tuple[str, ...]:
        return options.ESTIMATORS if self.estimator == "both" else (self.estimator,)


@dataclass(frozen=True)
class TransferStudy:
    """Explore once, then learn many goals that were never seen: what a diverse team is worth against other ways to begin.

    All have the same number of environment steps in total, with exploration and the choice of an agent counted. One page has
    the curves, and a verdict on each claim. The archive of MAP-Elites needs farflung[archive], the world door-key
    farflung[xminigrid]. The same command continues after an interruption.
    """

    worlds: Annotated[tuple[str, ...], one_of(options.STUDY_WORLDS, is_repeated=True)] = options.STUDY_WORLDS
    """Worlds to learn goals in."""
    agents: int = 6
    """Agents in a team, and trajectories of the one policy (m in the paper)."""
    goals: int = 10
    """Goals in each world, drawn from those that are not near the start."""
    episodes: int = 5
    """Episodes of each agent by which the best one is chosen for a goal."""
    updates: int = 60
    """Policy updates of exploration."""
    learning_updates: int = 40
    """Policy updates for a goal, after exploration; whoever does not explore has more of them, for the same steps in total."""
    seeds: int = 10
    """Number of random seeds."""
    quick: bool = False
    """Preview with maze-stoc and point-four-rooms, 3 seeds, 4 goals, 30 updates of exploration and 20 for a goal."""

    def __post_init__(self) -> None:
        preview = {"worlds": ("maze-stoc", "point-four-rooms"), "seeds": 3, "goals": 4, "updates": 30, "learning_updates": 20}
        for name, value in preview.items() if self.quick else ():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "worlds", checks.several("worlds", self.worlds))
        if not self.worlds or len(set(self.worlds)) < len(self.worlds):
            raise ValueError("worlds must be one or more, all different")
        for world in self.worlds:
            checks.check_name("world", world, options.STUDY_WORLDS)
        for name in ("agents", "goals", "episodes", "updates", "learning_updates", "seeds"):
            object.__setattr__(self, name, checks.whole_number(name, getattr(self, name)))
        if self.agents < 2:
            raise ValueError("agents must be at least 2: the best of them is chosen")

    @property
    def seed_values(self) -> tuple[int, ...]:
        return tuple(range(self.seeds))


@dataclass(frozen=True)
class Ablate(_Suite):
    """Train every credit with every optimiser, remove each part of the defaults in turn, and write one page about the effects.

    The same command continues after an interruption.
    """

    credits: Annotated[tuple[str, ...], one_of(options.CREDITS, is_repeated=True)] = options.CREDITS
    """Credits to train with: ways to turn the team's entropy into the weight of each action."""
    optimizers: Annotated[tuple[str, ...], one_of(options.OPTIMIZERS, is_repeated=True)] = options.OPTIMIZERS
    """Optimisers to combine with each credit."""
    objectives: Annotated[tuple[str, ...], tyro.conf.arg(metavar="OBJECTIVE ...")] = ("own", "skills", "trajectory")
    """Objectives to maximise with the defaults instead of the entropy of states, as in farflung explore."""
    updates: int = 1000
    """Policy updates of each training with other settings than the paper's (N in the paper)."""
    paper_updates: int = 10_000
    """Policy updates with the paper's settings; the final entropy is the target for all other settings."""
    batches: int = 200
    """Batches from which the variance of a gradient is estimated."""
    quick: bool = False
    """Preview with room-stoc and maze-det, 6 agents, 3 seeds, 200 updates (2,000 with the paper's settings) and 50 batches."""

    def __post_init__(self) -> None:
        preview = {"worlds": options.PAPER_WORLDS[1:3], "agents": (6,), "seeds": 3, "updates": 200}
        preview |= {"paper_updates": 2000, "batches": 50}
        self._check(("seeds", "updates", "paper_updates", "batches"), preview, is_preview=self.quick)
        for name, known in (("credits", options.CREDITS), ("optimizers", options.OPTIMIZERS)):
            for each in checks.several(name, getattr(self, name)):
                checks.check_name(name.removesuffix("s"), each, known)
            object.__setattr__(self, name, tuple(each for each in known if each in getattr(self, name)))
            if not getattr(self, name):
                raise ValueError(f"at least one of the {name} is needed: {', '.join(known)}")
        objectives = checks.several("objectives", self.objectives)
        for each in objectives:
            options.objective_terms(each)
        object.__setattr__(self, "objectives", tuple(dict.fromkeys(each for each in objectives if each != "state")))
        if self.batches < 2:
            raise ValueError("batches must be at least 2: one batch has no variance")
