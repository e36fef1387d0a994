"""Timestamps: the one format, and reading of dates that people write."""

import pytest

from appliance.kernel.clock import iso, utc


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_770_247_845_123, "2026-02-04T23:30:45.123Z"),
        (1_770_247_845_007, "2026-02-04T23:30:45.007Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_timestamp_has_milliseconds_and_utc(ms, text):
    assert iso(ms) == text


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-02-04", "2026-02-04T00:00:00.000Z"),
        ("2026-02-04T23:30:45.123Z", "2026-02-04T23:30:45.123Z"),
        ("2026-02-04T23:30:45", "2026-02-04T23:30:45.000Z"),
        ("2026-02-05T00:30:45+01:00", "2026-02-04T23:30:45.000Z"),
    ],
)
def test_date_is_converted_to_utc(text, time):
    assert utc(text) == time


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "0001-01-01T00:00:00+23:00"])
def test_invalid_date_is_refused(text):
    with pytest.raises(ValueError, match=r"\S"):
        utc(text)
