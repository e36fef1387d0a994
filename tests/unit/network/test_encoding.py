"""Base64 and timestamps have one spelling each."""

import pytest

from appliance.network.encoding import SKEW_MS, is_current, of_base64, of_timestamp
from tests.unit.network import vectors


@pytest.mark.parametrize("text", ["AB==", "AA=", "AA", "A A=", "AA==\n", "-_==", "é"])
def test_second_spelling_of_base64_is_refused(text):
    with pytest.raises(ValueError):
        of_base64(text)


def test_timestamp_is_read():
    assert of_timestamp(vectors.TIMESTAMP) == vectors.TIMESTAMP_MS
    assert of_timestamp("2026-02-17T12:00:00Z") == vectors.TIMESTAMP_MS
    assert of_timestamp("2026-02-17T12:00:00.123456Z") == vectors.TIMESTAMP_MS + 123


@pytest.mark.parametrize(
    "text", ["", "now", "2026-02-17", "2026-02-17T12:00:00", "2026-02-17T12:00:00+01:00",
             "2026-13-17T12:00:00Z", "0000-01-01T00:00:00Z"],
)  # fmt: skip
def test_other_timestamp_is_refused(text):
    with pytest.raises(ValueError):
        of_timestamp(text)


@pytest.mark.parametrize(("skew_ms", "current"), [(0, True), (SKEW_MS, True), (SKEW_MS + 1, False)])
def test_clocks_may_differ_by_five_minutes(skew_ms, current):
    assert is_current(vectors.TIMESTAMP, vectors.TIMESTAMP_MS + skew_ms) is current
    assert is_current(vectors.TIMESTAMP, vectors.TIMESTAMP_MS - skew_ms) is current
