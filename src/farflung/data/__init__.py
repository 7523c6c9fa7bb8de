"""Datasets for offline RL: collected by a team, relabelled, written, read and learnt from."""

from farflung.data.archives import load_dataset, save_dataset, to_d3rlpy
from farflung.data.collecting import collect, collect_parts
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
