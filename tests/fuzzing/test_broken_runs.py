import json
import warnings

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.fuzzing.broken import (
    FIXTURES,
    VERSIONS,
    changed,
    changed_arrays,
    damages,
    examples,
    one_line_errors_only,
    pack,
    temporary_copy,
    unpack,
)

from farflung import load_run
from farflung.runs.checkpoints import CheckpointWarning, open_checkpoints
from farflung.runs.files import to_json
from farflung.runs.run import final_values, typical_seed
from farflung.runs.statistics import final_table

RUNS = FIXTURES / VERSIONS[-1] / "runs"
KINDS = sorted(path.name for path in RUNS.iterdir())


def read(path):
    """Reads a run and uses it as the commands do."""
    with one_line_errors_only():
        run = load_run(path)
        final_values(run.updates, run.metrics)
        run.team(typical_seed(run))
        to_json(run.summary)
        assert len(run.steps) == len(run.updates) == len(run.is_spaced)


@pytest.mark.parametrize("kind", KINDS)
@examples(0.3)
@given(data=st.data(), damage=damages())
def test_a_run_with_a_broken_file_gives_one_line(kind, data, damage):
    with temporary_copy(RUNS / kind) as run:
        damage(data.draw(st.sampled_from(sorted(run.iterdir()))))
        read(run)


@pytest.mark.parametrize("kind", KINDS)
@examples(0.2)
@given(data=st.data())
def test_a_file_in_place_of_another_gives_one_line(kind, data):
    with temporary_copy(RUNS / kind) as run:
        files = [path for other in KINDS for path in sorted((RUNS / other).iterdir())]
        data.draw(st.sampled_from(sorted(run.iterdir()))).write_bytes(data.draw(st.sampled_from(files)).read_bytes())
        read(run)


@pytest.mark.parametrize("kind", KINDS)
@examples(0.6)
@given(data=st.data())
def test_changed_json_gives_one_line(kind, data):
    with temporary_copy(RUNS / kind) as run:
        path = run / data.draw(st.sampled_from(["config.json", "config.json", "summary.json"]))
        path.write_text(json.dumps(data.draw(changed(json.loads(path.read_text())))))
        read(run)


@pytest.mark.parametrize("kind", KINDS)
@examples(0.6)
@given(data=st.data())
def test_changed_arrays_give_one_line(kind, data):
    with temporary_copy(RUNS / kind) as run:
        path = data.draw(st.sampled_from(sorted(run.glob("*.npz"))))
        arrays = unpack(path)
        texts = [name for name in ("hosted", "vectors", "recipe") if name in arrays]
        if texts and data.draw(st.booleans()):
            content = data.draw(changed(json.loads(str(arrays[texts[0]]))))
            path.write_bytes(pack(arrays | {texts[0]: json.dumps(content)}))
        else:
            path.write_bytes(pack(data.draw(changed_arrays(arrays))))
        read(run)


@examples(0.3)
@given(data=st.data())
def test_a_changed_metrics_table_gives_one_line(data):
    with temporary_copy(RUNS / "table") as run:
        path = run / "metrics.csv"
        cells = [line.split(",") for line in path.read_text().splitlines()]
        row = data.draw(st.integers(0, len(cells) - 1))
        column = data.draw(st.integers(0, len(cells[row]) - 1))
        cells[row][column] = data.draw(
            st.sampled_from(["", "nan", "inf", "1e400", "-1", "x", "0x10", "1_0", "٣"]) | st.text(max_size=5)
        )
        path.write_text("\n".join(map(",".join, cells)), encoding="utf-8", errors="replace")
        read(run)


@pytest.mark.parametrize("kind", ["hosted", "table"])
@examples(0.4)
@given(data=st.data(), damage=damages())
def test_a_training_with_a_broken_file_is_resumed_or_ends_in_one_line(kind, data, damage):
    with temporary_copy(FIXTURES / VERSIONS[-1] / "unfinished" / kind) as run:
        damage(data.draw(st.sampled_from(sorted((run / "unfinished").iterdir()))))
        with one_line_errors_only(), warnings.catch_warnings(), open_checkpoints(run) as checkpointer:
            warnings.simplefilter("ignore", CheckpointWarning)
            found = checkpointer.latest()
            assert found is None or found.training_state.update in (1, 3, 6)


def test_an_intact_run_is_read():
    for kind in KINDS:
        with temporary_copy(RUNS / kind) as run:
            assert len(final_table(load_run(run))) > 7
