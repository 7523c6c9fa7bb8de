import numpy as np
import pytest

from farflung import Explore, Reproduce
from farflung.config import CREDITS, OfflineLearning
from farflung.config.checks import whole_number, whole_seeds
from farflung.entropy import credit


def test_the_names_that_are_listed_without_jax_are_those_that_exist():
    assert tuple(credit.CREDITS) == CREDITS


def test_numpy_integers_are_whole_numbers():
    assert whole_seeds(np.arange(3)) == (0, 1, 2)
    assert type(whole_number("agents", np.int64(5))) is int


def test_the_suites_seeds_are_the_papers_first():
    assert Reproduce().seed_values == (0, 1, 2, 42, 133)
    assert Reproduce(seeds=2).seed_values == (0, 1)
    assert Reproduce(seeds=8).seed_values == (0, 1, 2, 42, 133, 3, 4, 5)
    assert Reproduce(schedule="text").schedules == ("text",)
    assert Reproduce(estimator="mean").estimators == ("mean",)


def test_the_estimator_is_the_papers_codes_and_older_versions_read_its_config():
    config = Explore("maze-det", preset="paper")
    assert config.over_trajectories == "sum"
    assert "over_trajectories" not in config.as_json()
    assert Explore("maze-det", over_trajectories="mean").as_json()["over_trajectories"] == "mean"
    with pytest.raises(ValueError, match="unknown over_trajectories 'median'"):
        Explore("maze-det", over_trajectories="median")


def test_the_papers_preset_is_the_papers():
    config = Explore("maze-det", preset="paper")
    assert (config.agents, config.trajectories, config.batch_size, config.updates) == (6, 1, 40, 10_000)
    assert (config.optimizer, config.learning_rate, config.decay, config.credit) == ("sgd", 0.15, 1.0, "total")
    assert (config.policy, config.init_scale, config.entropy_bonus, config.steps_per_batch) == ("stationary", 1.0, 0.0, 1)
    assert config.seeds == (0, 1, 2, 42, 133)


def test_a_preset_gives_way_to_what_is_asked_for():
    config = Explore("maze-det", preset="paper", credit="causal", updates=50)
    assert (config.credit, config.updates, config.optimizer) == ("causal", 50, "sgd")
    assert Explore("maze-det").credit == "causal"


def test_the_learning_rate_is_that_of_the_optimizer():
    assert Explore("maze-det", optimizer="natural").learning_rate == 3.0
    assert Explore("maze-det", optimizer="natural", learning_rate=0.1).learning_rate == 0.1


def test_one_percent_of_the_bonus_is_left_at_the_end():
    config = Explore("maze-det", updates=700)
    assert 0.005 < config.bonus_decay**700 < 0.01


@pytest.mark.parametrize(
    "name", ["agents", "trajectories", "batch_size", "updates", "horizon", "log_every", "combinations", "steps_per_batch"]
)
@pytest.mark.parametrize("value", [0, -3, True])
def test_counts_are_whole_numbers_from_one(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        Explore("maze-det", **{name: value})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slip": 1.2}, "slip"),
        ({"slip": float("nan")}, "slip"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("inf")}, "learning_rate"),
        ({"decay": 0.0}, "decay"),
        ({"decay": 1.5}, "decay"),
        ({"optimizer": "adamm"}, "unknown optimizer 'adamm' .did you mean 'adam'"),
        ({"credit": "totl"}, "unknown credit 'totl' .did you mean 'total'"),
        ({"policy": "time-dependant"}, "did you mean 'time-dependent'"),
        ({"policy": "xyz"}, "unknown policy 'xyz': choose auto, stationary, time-dependent"),
        ({"preset": "ours"}, "unknown preset 'ours': choose farflung, paper"),
        ({"init_scale": -1.0}, "init_scale must be at least 0"),
        ({"entropy_bonus": float("nan")}, "entropy_bonus"),
        ({"bonus_decay": 1.1}, "bonus_decay"),
        ({"clip": 0.0}, "clip"),
        ({"credit": "total", "combinations": 2}, "combinations are for the credits difference and causal, not total"),
        ({"combinations": 41}, "combinations must be at most the batch size, 40, not 41"),
        ({"single": True, "independent": True}, "--single and --independent exclude each other"),
        ({"seeds": ()}, "at least one seed"),
        ({"seeds": (-1,)}, "a seed is a whole number"),
        ({"seeds": (1, 1)}, "differ"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message) as error:
        Explore("maze-det", **settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("settings", [{"hidden": (8,)}, {"std": "state"}, {"init_std": 0.3}])
def test_settings_of_networks_are_refused_where_policies_are_tables(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"{name} is for networks, and maze-det has numbered states"):
        Explore("maze-det", **settings).resolved(has_vectors=False)
    assert getattr(Explore("point-gap", **settings), name) == settings[name]


def test_the_defaults_for_networks_are_filled_in_where_states_are_vectors():
    config = Explore("Pendulum-v1", agents=3, updates=7)
    resolved = config.resolved(has_vectors=True)
    assert (config.policy, config.entropy_bonus) == ("auto", 0.5)
    assert (resolved.policy, resolved.entropy_bonus, resolved.learning_rate) == ("neural", 0.01, 0.002)
    assert (resolved.agents, resolved.updates) == (3, 7)
    assert resolved.resolved(has_vectors=True) is resolved
    with pytest.raises(ValueError, match="the states of Pendulum-v1 are vectors"):
        Explore("Pendulum-v1", policy="stationary").resolved(has_vectors=True)
    with pytest.raises(ValueError, match="Pendulum-v1 has numbered states"):
        resolved.resolved(has_vectors=False)


@pytest.mark.parametrize("settings", [{"goals": 4}, {"goal_radius": 0.5}])
def test_goals_in_a_maze_are_refused_where_each_state_is_one(settings):
    (name,) = settings
    config = OfflineLearning("maze-v0", **settings)
    with pytest.raises(ValueError, match=f"{name} is for mazes"):
        config.resolved(has_vectors=False, has_rewards=False)
    assert getattr(config.resolved(has_vectors=True, has_rewards=False), name) == settings[name]
