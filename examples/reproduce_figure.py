"""A figure of the paper: state entropy of a team of six and of a single agent during training, as in the paper."""

import matplotlib.pyplot as plt
import numpy as np

import farflung

WORLD, AGENTS = "maze-stoc", 6

figure, axis = plt.subplots(layout="constrained")
for name, is_single in ((f"{AGENTS} agents", False), (f"1 agent, {AGENTS} trajectories", True)):
    run = farflung.explore(WORLD, agents=AGENTS, preset="paper", single=is_single)
    updates = run.updates[run.is_spaced]  # the last 1% are recorded without gaps, for the final values
    entropy = run.metrics.normalized_entropy[:, run.is_spaced]  # [seed, record]
    axis.plot(updates, entropy.mean(axis=0), label=name)
    axis.fill_between(updates, entropy.min(axis=0), entropy.max(axis=0), alpha=0.2)
    print(f"{name}: {np.mean(run.summary['final']['normalized_entropy']):.3f} of log(states)")
axis.axhline(run.summary["ceiling"]["normalized_bound"], color="grey", linestyle=":", label="no team exceeds this")
axis.set(title=WORLD, xlabel="policy updates", ylabel="state entropy / log(states)")
axis.legend()
figure.savefig("learning-curves.png")
