#!/bin/bash
# Start it on a login node, in tmux or screen: it submits a job array, waits for it,
# and writes the table and the figure.
# After an interruption, start it again: it continues.
set -euo pipefail
source "$HOME/farflung/.venv/bin/activate"   # a clone with .venv, in a directory that all nodes see
cd "$SCRATCH"                                # so is this one
farflung sweep explore maze-stoc --agents 2 4 8 16 --learning-rate 0.05 0.1 --seeds 0 1 2 3 4 5 6 7 8 9 \
  --out sweep --launcher slurm --cpus 4 --minutes 120 \
  --partition short --slurm-options account=lab mem=8GB
farflung compare sweep --out sweep-compared
