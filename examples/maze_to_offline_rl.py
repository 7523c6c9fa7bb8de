"""Offline RL where states are vectors: goals reached with a few episodes of a team, one policy, or random actions."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tyro
from scipy.stats import entropy

import farflung
from farflung.figures.reached import draw_goals


def main(
    world: str = "point-gap", episodes: int = 6, updates: int = 500, batches: int = 2000, seeds: tuple[int, ...] = (0, 1, 2)
) -> None:
    """Trains a team and one policy, collects episodes, learns to reach goals from them, and draws the success rates."""

    def trained(name: str, *, single: bool) -> farflung.Run:
        path = Path("runs", f"{world}-6-{name}")
        if path.exists():
            return farflung.load_run(path)
        return farflung.explore(world, agents=6, updates=updates, seeds=seeds, single=single, out=path)

    team, alone = trained("agents", single=False), trained("single", single=True)
    players = {"six agents": (team, False), "one policy": (alone, False), "random actions": (team, True)}
    figure, axes = plt.subplots(1, len(players), figsize=(9, 3.4), layout="constrained")
    for axis, (name, (run, random)) in zip(axes, players.items(), strict=True):
        coverage, learnt = [], []
        for seed in seeds:
            data = farflung.collect(run, episodes, seed=seed, random_seed=seed, random=random)
            coverage.append(entropy(data.visits()) / np.log(run.world.num_states))
            learnt.append(farflung.learn_offline(data, batches=batches, seeds=(seed,), against_random=False))
        success = np.concatenate([found.success for found in learnt])
        print(f"{name} in {data.num_transitions} steps: ", end="")
        print(f"entropy / log(cells) {np.mean(coverage):.3f} ± {np.std(coverage):.3f}, ", end="")
        print(f"goals reached {success.mean():.3f} ± {success.mean(axis=1).std():.3f}", flush=True)
        discs = draw_goals(axis, learnt[0], success.mean(axis=0))
        axis.set_title(f"{name}: {100 * success.mean():.0f}%")
    figure.colorbar(discs, ax=axes, label="success rate", shrink=0.8)
    figure.savefig("goals.png", dpi=150)


if __name__ == "__main__":
    tyro.cli(main)
