"""The header `traceparent`, by the examples and rules of W3C Trace Context."""

import pytest

from appliance.shared.traceparent import parse

VALID = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_fields_of_this_and_of_a_later_version_are_kept():
    assert parse(VALID) == VALID
    later = VALID.replace("00-", "cc-", 1)
    assert parse(later + "-more") == later


@pytest.mark.parametrize("header", [
    None, "", "x", VALID.upper(), VALID[:-1], VALID + "-more", VALID + "0",
    VALID.replace("00-", "ff-", 1), VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
    VALID.replace("00f067aa0ba902b7", "0" * 16), VALID + "\n", f" {VALID}",
])  # fmt: skip
def test_an_invalid_header_is_ignored(header):
    assert parse(header) is None
