"""The paper's main comparison in one world: does a team cover more states than one policy with as many episodes?"""

import numpy as np

import farflung

SEEDS = tuple(range(8))

team = farflung.explore("room-det", agents=6, seeds=SEEDS)
single = farflung.explore("room-det", agents=6, seeds=SEEDS, single=True)

for metric in ("normalized_entropy", "support", "individual_entropy", "diversity"):
    values = [np.mean(run.summary["final"][metric]) for run in (team, single)]
    print(f"{metric:20} team {values[0]:7.3f}   single {values[1]:7.3f}   random {team.summary['random'][metric]:7.3f}")
