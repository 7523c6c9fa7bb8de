"""A world of your own that is not a map: a ring of rooms with doors that sometimes stick."""

import numpy as np

import farflung

NUM_ROOMS, STICKS = 20, 0.1
rooms = np.arange(NUM_ROOMS)
next_rooms = np.stack([(rooms + 1) % NUM_ROOMS, (rooms - 1) % NUM_ROOMS], axis=-1)  # action 0 goes right, 1 goes left
stay = np.broadcast_to(rooms[:, None], next_rooms.shape)

world = farflung.tabular_mdp(
    successors=np.stack([next_rooms, stay], axis=-1),
    probabilities=np.broadcast_to([1 - STICKS, STICKS], (NUM_ROOMS, 2, 2)),
    start_distribution=np.eye(NUM_ROOMS)[0],
)
run = farflung.explore(world, agents=2, updates=500, seeds=(0, 1, 2, 3))
print(f"{world.num_states} rooms, {world.horizon} steps")
print("entropy / log(rooms) per seed:", np.round(run.summary["final"]["normalized_entropy"], 3))
for agent, visits in enumerate(farflung.occupancy(world, run.team(seed=0))):
    print(f"agent {agent + 1}:", "".join(" .:*#"[min(4, int(share * 60))] for share in visits))
