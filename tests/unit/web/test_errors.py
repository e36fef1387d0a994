"""Every kind of failure has one status, one body, and the headers that belong to it."""

import pytest

from appliance.kernel.errors import ApplianceError, Exhausted, Unavailable
from appliance.web import errors

KINDS = [
    kind for kind in ApplianceError.__subclasses__() if kind.__module__ == "appliance.kernel.errors"
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_status(kind: type[ApplianceError]) -> None:
    assert 400 <= kind.status <= 503


def test_details_of_any_type_can_be_shown() -> None:
    assert b"object" in errors.body(ApplianceError(details={"x": object()}), "r1")


@pytest.mark.parametrize(("seconds", "header"), [(0.2, "1"), (1.0, "1"), (1.01, "2"), (30, "30")])
def test_retry_after_is_whole_seconds_rounded_up(seconds: float, header: str) -> None:
    assert errors.headers_of(Exhausted(retry_after=seconds)) == {"retry-after": header}


def test_unavailable_always_has_retry_after() -> None:
    assert errors.headers_of(Unavailable())["retry-after"] == "1"
