"""From a team to offline RL: explore without a goal, collect episodes, and learn to reach every goal from these episodes."""

import farflung

team = farflung.explore("maze-det", agents=6, seeds=(0,))
alone = farflung.explore("maze-det", agents=6, seeds=(0,), single=True)
for name, run in {"six agents": team, "one agent, as many episodes": alone}.items():
    dataset = farflung.collect(run, episodes=6)
    farflung.save_dataset(dataset, f"{name.split()[0]}.npz")
    learnt = farflung.learn_offline(dataset)
    print(f"{name}: {dataset.num_transitions} transitions, goals reached in {100 * learnt.success.mean():.0f}% of the attempts")
