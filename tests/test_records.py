import jax
import numpy as np
from tests.made_runs import made_metrics

from farflung.runs.metrics_table import MetricsTable


def test_a_metrics_table_is_the_same_in_memory_and_in_a_growing_file(tmp_path):
    in_memory, in_file = MetricsTable((3, 8)), MetricsTable((3, 8), tmp_path / "metrics.csv")
    for number, values in enumerate([(1.5, 2.5), (), (3.25,)]):
        updates = np.arange(len(values)) + 10 * number + 1
        for records in (in_memory, in_file):
            records.add(updates, updates * 7, made_metrics(*values))
        in_file.flush()
    for one, other in zip(in_memory.table(), in_file.table(), strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)
    again = MetricsTable((3, 8), tmp_path / "metrics.csv", in_file.num_bytes, in_file.checksum)
    np.testing.assert_array_equal(again.table()[0], [1, 2, 21])
    np.testing.assert_array_equal(again.table()[2].entropy, in_memory.table()[2].entropy)


def test_rows_after_a_checkpoint_are_cut_off(tmp_path):
    records = MetricsTable((3, 8), tmp_path / "metrics.csv")
    records.add(np.array([1]), np.array([7]), made_metrics(1.0))
    records.flush()
    before = (records.num_bytes, records.checksum)
    records.add(np.array([2]), np.array([14]), made_metrics(2.0))
    records.flush()
    again = MetricsTable((3, 8), tmp_path / "metrics.csv", *before)
    again.add(np.array([3]), np.array([21]), made_metrics(3.0))
    again.flush()
    np.testing.assert_array_equal(again.table()[0], [1, 3])
