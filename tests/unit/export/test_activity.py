"""Arithmetic of the activity report."""

import pytest

from appliance.export.activity import weighted_median


@pytest.mark.parametrize(
    ("pairs", "median"),
    [
        ([], None),
        ([(3.0, 1)], 3.0),
        ([(3.0, 1), (1.0, 1)], 1.0),
        ([(1.0, 1), (2.0, 1), (9.0, 1)], 2.0),
        ([(9.0, 5), (1.0, 2), (2.0, 2)], 9.0),
        ([(9.0, 1), (1.0, 1), (2.0, 10)], 2.0),
    ],
)
def test_weighted_median_is_where_half_of_the_weight_is_reached(pairs, median):
    assert weighted_median(pairs) == median
