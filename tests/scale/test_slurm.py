import itertools
import os
import pickle
import signal
import stat
import sys
from pathlib import Path

import pytest
from tests.scale.gated import SETTINGS, results, waiting

from farflung import Explore
from farflung.config import Launching
from farflung.scale.jobs import Job, launch, made
from farflung.scale.on_slurm import OnSlurm

pytest.importorskip("submitit")
POINTS = {f"rate-{rate}": Explore("room-det", learning_rate=rate, **SETTINGS) for rate in (0.05, 0.1)}
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _found_in_jobs(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")


def job(folder, gate, points=POINTS):
    return Job(
        "tests.scale.gated:train",
        tuple(points),
        {"gate": str(gate), "out": str(folder), "points": points, "world_options": {}},
    )


FAKE = f"""#!{sys.executable}
'''Slurm in a file: sbatch starts an array of processes, scontrol requeue starts one of them again.'''
import os, re, subprocess, sys, time
from pathlib import Path

name, folder = Path(sys.argv[0]).name, Path(__file__).parent


def start(script, number):
    text = Path(script).read_text()
    log = open(folder / f"log-{{number}}", "a")
    own = {{"SLURM_JOB_ID": f"70{{number}}", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(number)}}
    own |= {{"SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}}
    subprocess.Popen(["bash", script], env=os.environ | own, stdout=log, stderr=log, start_new_session=True)
    (folder / f"script-{{number}}").write_text(script)


if name == "sbatch":
    script = sys.argv[-1]
    (folder / "asked").write_text(Path(script).read_text())
    last = re.search(r"--array=0-(\\d+)", Path(script).read_text())
    for number in range(int(last[1]) + 1):
        start(script, number)
    print("Submitted batch job 7")
elif name == "srun":
    words = sys.argv[1:]
    while words[0].startswith("-"):
        words = words[2:] if words[0] in ("--output", "--error") else words[1:]
    os.execvp(words[0], words)
elif name == "sacct":
    print("JobID|State|NodeList")
    for each in folder.glob("script-*"):
        print(f"7_{{each.name[7:]}}|RUNNING|here")
elif name == "scontrol":
    (folder / "requeued").open("a").write(sys.argv[-1] + "\\n")
    number = sys.argv[-1].split("_")[1]
    if os.fork() == 0:
        os.setsid()
        time.sleep(0.5)
        start((folder / f"script-{{number}}").read_text(), number)
        os._exit(0)
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name in ("sbatch", "srun", "sacct", "scontrol", "scancel"):
        (folder / name).write_text(FAKE)
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self._folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self._folder),)


@pytest.fixture
def traps(tmp_path, monkeypatch):
    """A forged module in the current folder, and forged files of jobs with the number that Slurm will give them."""
    for name in ("numpy", "filelock"):
        (tmp_path / f"{name}.py").write_text(f"import os; os.mkdir({str(tmp_path / 'trapped')!r})")
    (tmp_path / "jobs").mkdir()
    for name, kind in itertools.product(("7_0_0", "7_1_0"), ("result", "submitted")):
        (tmp_path / "jobs" / f"{name}_{kind}.pkl").write_bytes(pickle.dumps(("success", Trap(tmp_path / "trapped"))))
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "trapped").exists()


@pytest.mark.usefixtures("traps")
def test_a_preempted_job_of_an_array_is_queued_again_and_ends_as_if_nothing_had_happened(slurm, tmp_path):
    (gate := tmp_path / "gate").mkdir()
    known = set()
    options = Launching("slurm", partition="short", minutes=7, slurm_options=("account=lab", "licenses=x"), in_flight=5)
    launcher = made(options, tmp_path / "jobs")

    def preempt_the_first():
        if not known:
            process, _ = waiting(gate, known)
            os.kill(process, signal.SIGTERM)  # as Slurm does, before the signal that it was asked for
            os.kill(process, signal.SIGUSR2)
            (gate / "open").touch()

    jobs = [job(tmp_path / name, gate) for name in ("one", "two")]
    assert launch(launcher, jobs, retries=0, on_wait=preempt_the_first) == {}
    assert (slurm / "requeued").read_text().strip() in ("7_0", "7_1")
    asked = (slurm / "asked").read_text()
    for option in ("--array=0-1%2", "--partition=short", "--time=7", "--account=lab", "--licenses=x", "--cpus-per-task=1"):
        assert option in asked
    assert len(results(tmp_path / "one")) == 4 * len(POINTS)
    assert len(firsts := [int(path.read_text()) for path in gate.glob("waiting-*")]) == 3
    assert max(firsts) > 3  # it did not start from the beginning
    assert results(tmp_path / "one") == results(tmp_path / "two")  # one of the two was preempted


def test_a_job_that_fails_is_told_with_submitits_own_executor(tmp_path):
    launcher = OnSlurm(Launching("slurm"), tmp_path / "jobs", cluster="local")
    bad = Job("tests.scale.gated:train", ("a",), {"gate": str(tmp_path)})
    assert "missing 3 required positional arguments" in launch(launcher, [bad], retries=0)["a"]


def test_jobs_are_exchanged_only_in_a_folder_of_ones_own(slurm, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "jobs").symlink_to("elsewhere")
    launcher = made(Launching("slurm"), tmp_path / "jobs")
    with pytest.raises(ValueError, match="jobs is a link or a file, and programs would be read from there"):
        launch(launcher, [job(tmp_path, tmp_path)], retries=0)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(ValueError, match="belongs to another user"):
        launch(launcher, [job(tmp_path, tmp_path)], retries=0)
    assert not (slurm / "asked").exists()


def test_what_sbatch_refuses_is_told(slurm, tmp_path):
    (slurm / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: moon' >&2\nexit 1\n")
    launcher = made(Launching("slurm", partition="moon"), tmp_path / "jobs")
    with pytest.raises(ValueError, match=r"Slurm does not take the jobs: .*invalid partition"):
        launch(launcher, [job(tmp_path, tmp_path)], retries=0)


def test_without_slurm_the_error_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ValueError, match="must be started where Slurm's srun and sbatch are"):
        made(Launching("slurm"), tmp_path)
