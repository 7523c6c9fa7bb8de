"""Settings of the commands: frozen dataclasses that check their values, without importing JAX."""

from farflung.config.checks import check_world as check_world
from farflung.config.checks import is_map_file as is_map_file
from farflung.config.commands import Ablate as Ablate
from farflung.config.commands import CeilingOptions as CeilingOptions
from farflung.config.commands import Collect as Collect
from farflung.config.commands import Compare as Compare
from farflung.config.commands import Concentration as Concentration
from farflung.config.commands import Film as Film
from farflung.config.commands import FrankWolfeRun as FrankWolfeRun
from farflung.config.commands import Objectives as Objectives
from farflung.config.commands import OfflineLearning as OfflineLearning
from farflung.config.commands import Reproduce as Reproduce
from farflung.config.commands import Resume as Resume
from farflung.config.commands import check_dataset_id as check_dataset_id
from farflung.config.explore import Explore as Explore
from farflung.config.explore import WorldOptions as WorldOptions
from farflung.config.options import CEILING_METHODS as CEILING_METHODS
from farflung.config.options import CONTINUOUS_WORLDS as CONTINUOUS_WORLDS
from farflung.config.options import CREDITS as CREDITS
from farflung.config.options import LOGGERS as LOGGERS
from farflung.config.options import METRICS as METRICS
from farflung.config.options import NEURAL_OPTIMIZERS as NEURAL_OPTIMIZERS
from farflung.config.options import OPTIMIZERS as OPTIMIZERS
from farflung.config.options import PAPER_WORLDS as PAPER_WORLDS
from farflung.config.options import PRESETS as PRESETS
from farflung.config.options import SCHEDULES as SCHEDULES
