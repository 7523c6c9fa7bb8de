#!/bin/bash
# Ray by hand on machines with a common directory: bash ray.sh head on one of them,
# bash ray.sh HEAD_ADDRESS on each other one, then bash ray.sh sweep on any of them.
# ray stop on each machine ends the cluster.
set -euo pipefail
source "$HOME/farflung/.venv/bin/activate"   # installed with pip install '.[ray]'
case "$1" in
  head) ray start --head --port=6379 --disable-usage-stats ;;
  sweep)
    cd /shared                               # seen by all machines
    farflung sweep explore maze-stoc --agents 2 4 8 16 --learning-rate 0.05 0.1 --seeds 0 1 2 3 4 5 6 7 8 9 \
      --out sweep --launcher ray --address auto --cpus 2
    ;;
  *) ray start --address="$1:6379" --disable-usage-stats ;;
esac
