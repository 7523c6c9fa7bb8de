import json

import hypothesis.strategies as st
from hypothesis import given
from tests.fuzzing.broken import JSON, changed, examples, one_line_errors_only

from farflung.worlds.gridworld import gridworld
from farflung.worlds.named import make_tabular_world
from farflung.worlds.named_vectors import make_vector_world
from farflung.worlds.point_maze import point_map

CELLS = st.text("#.SG\n", max_size=40) | st.text("#.SG \r\n\x0b\x85\u2028A\ufeff", max_size=40) | st.text(max_size=20)
RECIPE = {
    "walls": [[0, 0, -1, 0.5]],
    "starts": [[-0.5, 0]],
    "horizon": 8,
    "step_size": 0.1,
    "low": [-1, -1],
    "high": [1, 1],
    "bins": [4, 4],
    "neighbours": 4,
}


@examples(1)
@given(CELLS, st.floats(0, 1))
def test_any_text_is_a_map_or_an_error(text, slip):
    with one_line_errors_only():
        assert gridworld(text, slip=slip).num_states > 1


@examples(0.4)
@given(CELLS, st.floats(0.05, 4))
def test_any_text_is_a_plane_or_an_error(text, step_size):
    with one_line_errors_only():
        assert point_map(text, step_size=step_size).num_states > 0


@examples(0.4)
@given(st.binary(max_size=60) | CELLS.map(lambda text: text.encode("utf-8", "replace")))
def test_any_file_is_a_map_or_an_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("maps") / "map.txt"
    path.write_bytes(content)
    with one_line_errors_only():
        assert make_tabular_world(str(path)).num_states > 1


@examples(1)
@given(st.data())
def test_any_recipe_is_a_world_or_an_error(data):
    recipe = data.draw(changed(RECIPE) | changed({"name": "point-gap", "horizon": 4}) | JSON)
    with one_line_errors_only():
        assert make_vector_world(json.dumps(recipe)).num_states >= 0
