"""Datasets for offline RL: collected by a team, relabelled, written, read and learnt from."""

from farflung.data.archives import load_dataset as load_dataset
from farflung.data.archives import save_dataset as save_dataset
from farflung.data.archives import to_d3rlpy as to_d3rlpy
from farflung.data.collecting import collect as collect
from farflung.data.collecting import collect_parts as collect_parts
from farflung.data.episodes import Dataset as Dataset
from farflung.data.episodes import Source as Source
from farflung.data.episodes import vector_episodes as vector_episodes
from farflung.data.goals import relabel as relabel
from farflung.data.minari import from_minari as from_minari
from farflung.data.minari import to_minari as to_minari
