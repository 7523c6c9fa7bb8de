"""What teams have seen, as datasets for offline RL: collected, relabelled, written and read."""

from farflung.datasets.archives import load_dataset, save_dataset
from farflung.datasets.collecting import collect, collect_parts
from farflung.datasets.episodes import Dataset, Source, vector_episodes
from farflung.datasets.goals import relabel
from farflung.datasets.mdp_dataset import to_d3rlpy
from farflung.datasets.minari_storage import from_minari, to_minari

__all__ = [
    "Dataset",
    "Source",
    "collect",
    "collect_parts",
    "from_minari",
    "load_dataset",
    "relabel",
    "save_dataset",
    "to_d3rlpy",
    "to_minari",
    "vector_episodes",
]
