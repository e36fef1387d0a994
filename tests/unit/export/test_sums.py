"""Arithmetic of the reports: sums by key, quantiles of merged histograms, coarser cells."""

import math
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as some

from appliance.export import sums
from appliance.export.cells import LEVELS, OTHERS, Cells, Level
from appliance.export.report_text import display
from appliance.shared.histogram import RELATIVE_ERROR, bucket_of, quantile
from tests.support.gold_tables import buckets

DURATIONS = some.lists(some.floats(0.001, 86_400), min_size=1, max_size=30)
DAYS = some.dates(date(2020, 1, 1), date(2027, 12, 31)).map(str)


def nearest_rank(values, part):
    ordered = sorted(values)
    return ordered[max(1, math.ceil(part * len(ordered))) - 1]


@given(some.lists(some.tuples(some.sampled_from("ab"), DURATIONS), min_size=1, max_size=8))
def test_quantiles_of_merged_rows_are_within_the_stated_error(rows):
    waits = [{"key": key, "buckets": list(buckets(*values).items())} for key, values in rows]
    (by,) = sums.histograms_by(waits, [lambda row: row["key"]], "buckets", [{"a", "b"}])
    assert by.keys() == {key for key, _ in rows}
    for key, merged in by.items():
        values = [value for name, each in rows if name == key for value in each]
        for part in (0.5, 0.95, 0.99):
            exact = nearest_rank(values, part)
            assert quantile(merged, part) == pytest.approx(exact, rel=RELATIVE_ERROR * 1.001)


CELLS = some.lists(
    some.tuples(DAYS, some.integers(0, 250), some.integers(1, 9), some.integers(-349, 930)),
    max_size=40,
)


@given(CELLS, some.sampled_from(range(len(LEVELS))))
def test_coarsened_cells_equal_cells_added_at_the_coarser_level(rows, last):
    stepwise, direct = Cells(LEVELS[0]), Cells(LEVELS[last])
    for day, rank, count, bucket in rows:
        for cells in (stepwise, direct):
            cells.add((day, rank), [count], [(bucket, count)])
    for level in LEVELS[1 : last + 1]:
        stepwise = stepwise.coarsen(level)
    assert stepwise.rows() == direct.rows()
    assert sum(row[2] for row in direct.rows()) == sum(count for _, _, count, _ in rows)
    assert all(row[1] < LEVELS[last].names_max for row in direct.rows())


@given(some.floats(0.001, 86_400), some.sampled_from([level.bucket_step for level in LEVELS]))
def test_a_coarse_bucket_stays_within_the_error_of_its_level(seconds, step):
    level = Level("day", 1, 1, step)
    cells = Cells(level)
    cells.add(("2026-01-01", 5), [], [(bucket_of(seconds), 1)])
    ((_, rank, (bucket, _)),) = cells.rows()
    assert rank == OTHERS
    assert 2 * level.gamma**bucket / (level.gamma + 1) == pytest.approx(
        seconds, rel=level.error * 1.001
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"), ("a\nb\x00", "a\ufffdb\ufffd"), ("\u202eevil", "\ufffdevil"),
        ("👩\u200d🚀", "👩\u200d🚀"), ("x" * 30, "x" * 9 + "…"), ("設計", "設計"),
    ],
)  # fmt: skip
def test_displayed_names_have_no_control_characters_and_a_limit(text, shown):
    assert display(text, 10) == shown
