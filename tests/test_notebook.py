import dataclasses
import re
from html.parser import HTMLParser

import jax.numpy as jnp
import numpy as np
import pytest
from tests.made_runs import made_continuous_run
from tests.studies.pages import browser, needs_browser

import farflung
from farflung.figures.curves import live
from farflung.figures.notebook import is_notebook, run_html, team_html, world_html


class Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.texts, self.images = [], 0

    def handle_data(self, data):
        self.texts += [data.strip()] if data.strip() else []

    def handle_starttag(self, tag, attrs):
        self.images += tag == "img" and dict(attrs)["src"].startswith("data:image/png;base64,")


def parsed(html):
    parser = Text()
    parser.feed(html)
    return parser


@pytest.fixture(scope="module")
def run():
    world = farflung.gridworld("S...\n....", horizon=4)
    return farflung.explore(world, agents=2, batch_size=4, preset="paper", updates=10, seeds=(0, 1))


def test_a_hosted_world_says_how_it_is_stepped():
    shown = parsed(world_html(farflung.hosted("FrozenLake-v1", horizon=20, workers=3)))
    assert {"FrozenLake-v1", "16", "4", "at most 20", "in 3 worker processes"} <= set(shown.texts)


def test_a_world_of_vectors_says_what_is_projected_on():
    shown = parsed(world_html(farflung.hosted("Pendulum-v1", features=(0, 2))))
    assert {
        "vectors of 3 numbers",
        "observation 0, observation 2",
        "400 on a grid of 20 x 20",
        "1 number",
        "at most 200",
    } <= set(shown.texts)


def test_a_map_is_shown_with_its_size():
    shown = parsed(world_html(farflung.make_tabular_world("maze-stoc")))
    assert shown.images == 1
    assert {"43", "4", "10", "stochastic, up to 4 successors"} <= set(shown.texts)


def test_a_world_that_is_no_map_is_a_table():
    world = farflung.from_kernel([[[0, 1]], [[1, 0]]], [1, 0], horizon=5)
    shown = parsed(world_html(world))
    assert shown.images == 0
    assert {"states", "2", "deterministic"} <= set(shown.texts)


def test_a_world_whose_states_are_vectors_is_shown_with_its_walls():
    shown = parsed(world_html(farflung.make_vector_world("point-gap")))
    assert shown.images == 1
    assert {"vectors of 2 numbers", "x, y", "400 on a grid of 20 x 20, of which 400 can be reached", "2 numbers", "64"} <= set(
        shown.texts
    )
    assert "k-NN distances, k = 4" in shown.texts
    shown = parsed(world_html(farflung.make_vector_world("mountain-car-discrete", neighbours=0)))
    assert shown.images == 0
    assert {"3 choices", "position, velocity", "counts in the cells"} <= set(shown.texts)


def test_a_run_where_states_are_vectors_is_shown_too():
    made = made_continuous_run(agents=2, seeds=(0,))
    finals = {name: [0.5] for name in made.metrics.columns}
    summary = {**made.summary, "final": finals, "percent_of_ceiling": [90.0], "updates": 100, "seconds": 1.0}
    shown = parsed(run_html(dataclasses.replace(made, summary=summary)))
    assert shown.images == 1
    assert {"particle entropy", "90.00"} <= set(shown.texts)


def test_a_team_shows_how_decided_each_agent_is():
    team = farflung.TabularSoftmax(jnp.array([[[0.0, 0.0], [0.0, 0.0]], [[9.0, 0.0], [0.0, 0.0]]]))
    texts = parsed(team_html(team)).texts
    assert texts[texts.index("agent no. 1") :][:3] == ["agent no. 1", "0.500", "0% of the states"]
    assert texts[texts.index("agent no. 2") :][:3] == ["agent no. 2", "0.750", "50% of the states"]


@pytest.mark.parametrize(
    ("axes", "is_time_dependent", "described"),
    [
        ((), False, "1 agent: one table"),
        ((4,), True, "1 agent: a table for each of 4 times"),
        ((3,), False, "3 agents: one table"),
        ((2, 3, 4), True, "2 seeds with 3 agents: a table for each of 4 times"),
    ],
)
def test_a_team_is_described_whatever_its_axes(axes, is_time_dependent, described):
    team = farflung.TabularSoftmax(jnp.zeros((*axes, 5, 2)), is_time_dependent)
    assert f"softmax policies of {described}, 5 states, 2 actions" in parsed(team_html(team)).texts


def test_a_run_shows_its_figure_and_the_values_of_the_final_table(run):
    shown = parsed(run_html(run))
    assert shown.images == 1
    entropy = sum(run.summary["final"]["entropy"]) / 2
    assert f"{entropy:.4f}" in shown.texts
    assert "% of the ceiling" in shown.texts


@needs_browser
def test_a_notebook_plays_the_page_of_a_run(run, tmp_path):
    path, problems = tmp_path / "notebook.html", []
    path.write_text(f"<!doctype html><meta charset=utf-8>{run_html(run)}", encoding="utf-8")
    with browser() as opened:
        tab = opened.new_page()
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.goto(path.as_uri())
        page = tab.frame_locator("iframe")
        for key, text in (("End", "step 4 of 4"), ("Home", "step 0 of 4")):
            page.locator("#time").press(key)
            assert text in page.locator("#panels figcaption").first.inner_text()
    assert problems == []


def test_a_run_without_a_ceiling_is_shown_too(run):
    known = {key: value for key, value in run.summary.items() if key not in ("random", "ceiling", "percent_of_ceiling")}
    assert "% of the ceiling" not in parsed(run_html(dataclasses.replace(run, summary=known))).texts


def test_this_is_no_notebook():
    assert not is_notebook()


def test_a_notebook_shows_a_live_curve_and_rich_objects(tmp_path, monkeypatch):
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    nbclient = pytest.importorskip("nbclient", reason="nbclient and ipykernel run the notebook")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    cells = [
        "import sys, farflung\n'jax' in sys.modules",
        "world = farflung.gridworld('S..#..', horizon=2)\nworld",
        "settings = dict(agents=2, preset='paper', updates=60, batch_size=2, seeds=(0, 1))",
        "run = farflung.explore(world, **settings)",
        "run",
        "run.team(seed=0).policies",
        "farflung.explore(world, **settings, live=False).summary['updates']",
        "import jax; jax.tree.map(lambda leaf: leaf.shape, world)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    is_slow, world, _, live, run, team, silent, shapes = [cell.outputs for cell in notebook.cells]
    assert all(output.output_type in ("display_data", "execute_result") for cell in notebook.cells for output in cell.outputs)
    assert is_slow[0].data["text/plain"] == "False"
    (curve,) = live
    assert curve.data["image/png"].startswith("iVBOR")
    for outputs in (world, run):
        assert re.search('<img alt="[^"]+" width="\\d+" src="data:image/png;base64,iVBOR', outputs[0].data["text/html"])
    assert "agent no. 2" in team[0].data["text/html"]
    assert silent[0].data["text/plain"] == "60"
    assert "text/html" not in shapes[0].data


def test_a_live_curve_says_over_what_the_entropy_is():
    updates, entropies = np.array([1, 50]), np.array([[0.2, 0.6], [0.3, 0.5]])
    (axis,) = live(updates, entropies, 100, None, "cell entropy / log(cells)").get_axes()
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("policy updates", "cell entropy / log(cells)")
    np.testing.assert_allclose(axis.lines[0].get_ydata(), [0.25, 0.55])
