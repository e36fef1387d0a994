"""Arithmetic of the reports: sums by key, quantiles of merged histograms."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from appliance.export import sums
from appliance.export.report_text import display
from appliance.shared.histogram import RELATIVE_ERROR, quantile
from tests.support.gold_tables import buckets

DURATIONS = some.lists(some.floats(0.001, 86_400), min_size=1, max_size=30)


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"), ("a\nb\x00", "a\ufffdb\ufffd"), ("\u202eevil", "\ufffdevil"),
        ("👩\u200d🚀", "👩\u200d🚀"), ("x" * 30, "x" * 9 + "…"), ("設計", "設計"),
    ],
)  # fmt: skip
def test_displayed_names_have_no_control_characters_and_a_limit(text, shown):
    assert display(text, 10) == shown
