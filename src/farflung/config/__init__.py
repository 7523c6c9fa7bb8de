"""Settings of the commands: frozen dataclasses that check their values, without importing JAX."""

from farflung.config.checks import check_world, is_map_file
from farflung.config.commands import (
    Ablate,
    CeilingOptions,
    Collect,
    Compare,
    Concentration,
    Film,
    FrankWolfeRun,
    OfflineLearning,
    Reproduce,
    Resume,
    check_dataset_id,
)
from farflung.config.explore import Explore, WorldOptions
from farflung.config.options import (
    CEILING_METHODS,
    CONTINUOUS_WORLDS,
    CREDITS,
    LOGGERS,
    METRICS,
    NEURAL_OPTIMIZERS,
    OPTIMIZERS,
    PAPER_WORLDS,
    PRESETS,
    SCHEDULES,
)

__all__ = [
    "CEILING_METHODS",
    "CONTINUOUS_WORLDS",
    "CREDITS",
    "LOGGERS",
    "METRICS",
    "NEURAL_OPTIMIZERS",
    "OPTIMIZERS",
    "PAPER_WORLDS",
    "PRESETS",
    "SCHEDULES",
    "Ablate",
    "CeilingOptions",
    "Collect",
    "Compare",
    "Concentration",
    "Explore",
    "Film",
    "FrankWolfeRun",
    "OfflineLearning",
    "Reproduce",
    "Resume",
    "WorldOptions",
    "check_dataset_id",
    "check_world",
    "is_map_file",
]
