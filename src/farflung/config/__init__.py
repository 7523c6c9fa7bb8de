"""What a user can ask for, checked before any work is done and without importing JAX."""

from farflung.config.bounds import CeilingOptions, Concentration, FrankWolfeRun
from farflung.config.compare import Compare
from farflung.config.data import Collect, OfflineLearning, check_dataset_id
from farflung.config.explore import Explore
from farflung.config.film import Film
from farflung.config.hosting import Features, Hosting
from farflung.config.options import (
    CEILING_METHODS,
    CONTINUOUS_WORLDS,
    CREDITS,
    DATA_FORMATS,
    LOGGERS,
    METRICS,
    NEURAL_OPTIMIZERS,
    OPTIMIZERS,
    PAPER_SEEDS,
    PAPER_WORLDS,
    PLANS,
    POLICIES,
    PRESETS,
    SCHEDULES,
)
from farflung.config.studies import Ablate, Reproduce
from farflung.config.worlds import check_world, is_map_file

__all__ = [
    "CEILING_METHODS",
    "CONTINUOUS_WORLDS",
    "CREDITS",
    "DATA_FORMATS",
    "LOGGERS",
    "METRICS",
    "NEURAL_OPTIMIZERS",
    "OPTIMIZERS",
    "PAPER_SEEDS",
    "PAPER_WORLDS",
    "PLANS",
    "POLICIES",
    "PRESETS",
    "SCHEDULES",
    "Ablate",
    "CeilingOptions",
    "Collect",
    "Compare",
    "Concentration",
    "Explore",
    "Features",
    "Film",
    "FrankWolfeRun",
    "Hosting",
    "OfflineLearning",
    "Reproduce",
    "check_dataset_id",
    "check_world",
    "is_map_file",
]
