import subprocess
import sys

import gymnasium
import pytest

IDS = "['farflung/Room-v0', 'farflung/Maze-v0', 'farflung/Grid-v0', 'farflung/PointMaze-v0']"


def output_of(program):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("imports", ["gymnasium, farflung", "farflung, gymnasium"])
def test_our_import_makes_the_ids_known_without_jax(imports):
    listed = "[name for name in gymnasium.registry if name.startswith('farflung/')]"
    assert output_of(f"import sys, {imports}; print({listed}, 'jax' in sys.modules)") == f"{IDS} False"


def test_help_waits_neither_for_jax_nor_for_gymnasium():
    slow = "{'jax', 'numpy', 'gymnasium', 'matplotlib', 'scipy'}"
    assert output_of(f"import sys, farflung.cli; print({slow} & set(sys.modules))") == "set()"


def test_gymnasium_imports_us_for_an_id_with_our_name():
    assert gymnasium.make("farflung:farflung/Maze-v0").spec.max_episode_steps == 10
