import numpy as np
import pytest

from farflung import Explore, Reproduce, credit
from farflung.checks import whole_number, whole_seeds
from farflung.config import CREDITS


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


def test_the_defaults_are_the_papers_preset():
    config = Explore("maze-det")
    assert (config.agents, config.trajectories, config.batch_size, config.updates) == (6, 1, 40, 10_000)
    assert (config.optimizer, config.learning_rate, config.decay, config.credit) == ("sgd", 0.15, 1.0, "total")
    assert config.seeds == (0, 1, 2, 42, 133)


@pytest.mark.parametrize("name", ["agents", "trajectories", "batch_size", "updates", "horizon", "log_every"])
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
        ({"policy": "xyz"}, "unknown policy 'xyz': choose stationary, time-dependent"),
        ({"seeds": ()}, "at least one seed"),
        ({"seeds": (-1,)}, "a seed is a whole number"),
        ({"seeds": (1, 1)}, "differ"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message) as error:
        Explore("maze-det", **settings)
    assert "\n" not in str(error.value)
