"""A job that waits in the middle of its training, so that a test can kill what it runs on."""

import os
import time
from pathlib import Path

from farflung.studies.sweep import train_points

SETTINGS = {"agents": 2, "updates": 60, "batch_size": 2, "seeds": (0, 1), "policy": "stationary", "log_every": 5}


def train(gate, on_progress=None, **arguments):
    """Trains; from update 4 on it waits until the file `open` is there. Each start leaves a file with its first update."""
    seen = []

    def wait(status):
        if status.update == 0:
            return
        seen.append(status.update)
        if seen[-1] >= seen[0] + 3:
            (Path(gate) / f"waiting-{os.getpid()}").write_text(str(seen[0]))
            while not (Path(gate) / "open").exists():
                time.sleep(0.05)

    return train_points(**arguments, on_progress=wait, checkpoint_updates=1)


def waiting(gate, known=(), seconds=120):
    """The process of a start that waits and is not known yet, and the first update that it saw."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for path in Path(gate).glob("waiting-*"):
            text = path.read_text()
            if path.name not in known and text:
                known.add(path.name)
                return int(path.name.split("-")[1]), int(text)
        time.sleep(0.05)
    raise AssertionError("no job has come to the gate")


def results(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.name in ("metrics.csv", "policies.npz", "world.npz", "playback.npz")
    }
