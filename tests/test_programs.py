"""Programs that a later process finds. Type checks would wrap farflung's functions, so these tests run without them."""

import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parent / "unchecked_programs.py"


def test_without_type_checks():
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", str(FILE)]
    done = subprocess.run(command, cwd=FILE.parent.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
