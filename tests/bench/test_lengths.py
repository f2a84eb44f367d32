"""The table of macro lengths: sizes are known, and what is refused says how many actions there are."""

import pytest

from rld2.bench.lengths import lengths_record, lengths_table, measure_lengths


@pytest.mark.bench
def test_short_macro_actions_are_measured_and_long_ones_refused():
    rows = measure_lengths(3, lengths=(1, 8))
    assert [(row.method, row.length, row.num_actions) for row in rows] == [
        ("RL-D2 FKL", 1, 6),
        ("DQN-Macro", 1, 6),
        ("RL-D2 FKL", 8, 6**8),
        ("DQN-Macro", 8, 6**8),
    ]
    *measured, refused = rows
    assert all(row.timing is not None and row.parameter_bytes > 0 for row in measured)
    assert all(row.update_bytes > row.parameter_bytes for row in measured)
    assert refused.timing is None
    assert "1,679,616 outputs" in refused.refused
    assert lengths_record(rows)[-1]["milliseconds"] is None
    assert lengths_table(rows).row_count == 4
