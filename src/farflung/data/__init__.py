"""What teams have seen, as datasets for offline RL: collected, relabelled, written and read."""

from farflung.data.archives import load_dataset, save_dataset
from farflung.data.collecting import collect, collect_parts
from farflung.data.d3rlpy import to_d3rlpy
from farflung.data.episodes import Dataset, Source, vector_episodes
from farflung.data.goals import relabel
from farflung.data.minari import from_minari, to_minari

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
