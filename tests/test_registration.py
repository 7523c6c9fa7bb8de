import subprocess
import sys

import gymnasium
import pytest

IDS = "['farflung/Room-v0', 'farflung/Maze-v0', 'farflung/Grid-v0']"
LIST_IDS = "print([name for name in gymnasium.registry if name.startswith('farflung/')])"


def output_of(program):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    "imports",
    [
        "import farflung, gymnasium",
        "import gymnasium, farflung",
        "import farflung, importlib.util; assert importlib.util.find_spec('gymnasium'); import gymnasium",
    ],
)
def test_gymnasium_knows_our_ids_whichever_is_imported_first(imports):
    assert output_of(f"{imports}; {LIST_IDS}") == IDS


def test_gymnasium_imports_us_for_an_id_with_our_name():
    assert gymnasium.make("farflung:farflung/Maze-v0").spec.max_episode_steps == 10


def test_our_import_brings_neither_gymnasium_nor_jax():
    assert output_of("import farflung, sys; print({'gymnasium', 'numpy', 'jax'} & {*sys.modules})") == "set()"


def test_registering_brings_no_jax():
    assert output_of("import farflung, gymnasium, sys; print('jax' in sys.modules)") == "False"
