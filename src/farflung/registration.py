"""Our worlds' ids, made known to Gymnasium when farflung is imported; JAX waits until one of them is made."""

import gymnasium

_EPISODES = {"Room": 8, "Maze": 10, "Grid": None}
"""The worlds and how many actions an episode has, where it is limited."""
POINT_MAZE = "farflung/PointMaze-v0"


def register_worlds() -> None:
    for name, max_episode_steps in _EPISODES.items():
        if f"farflung/{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"farflung/{name}-v0",
                entry_point=f"farflung.environments.playable:{name}Env",
                vector_entry_point=f"farflung.environments.playable_vector:{name}VectorEnv",
                max_episode_steps=max_episode_steps,
            )
    if POINT_MAZE not in gymnasium.registry:
        gymnasium.register(POINT_MAZE, entry_point="farflung.environments.playable_point:PointMazeEnv")
