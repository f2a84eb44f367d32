"""The table of joint actions: every way to choose one is there, and compared with one player after the other."""

import pytest

from rld2.bench.sampling import measure_sampling, sampling_record, sampling_table


@pytest.mark.bench
def test_every_number_of_steps_is_compared():
    rows = measure_sampling(3, players=(2, 3))
    assert [(row.players, row.steps) for row in rows] == [(2, None), (2, 1), (2, 2), (3, None), (3, 1), (3, 2), (3, 3)]
    assert [row.ratio for row in rows if row.steps is None] == [1.0, 1.0]
    assert all(record["milliseconds"] > 0.0 for record in sampling_record(rows))
    assert sampling_table(rows).row_count == 7
