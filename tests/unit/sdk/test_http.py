"""Requests that meet faults: asked again where that is safe, and with the same key."""

import pytest

from appliance.kernel.errors import Invalid
from appliance.sdk.discovery import Endpoint, HubNotRunning
from appliance.sdk.http import PATIENT, HubClient, Refused, Retry
from tests.support.faulty_hub import Answer, FakeHttp, http_hub

OK: Answer = (201, {}, {"fine": True})
BUSY: Answer = (503, {"Retry-After": "1"}, {"error": "busy", "code": "SERVICE_UNAVAILABLE"})


class _Pauses(list[float]):
    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.mark.parametrize(
    "fault",
    [
        BUSY,
        (429, {}, {"error": "slow", "code": "RATE_LIMITED", "details": {"retry_after": 0.25}}),
        (409, {"Retry-After": "1"}, {"error": "running", "code": "IDEMPOTENCY_IN_PROGRESS"}),
        (502, {}, b"<html>proxy</html>"),
        "hang up",
    ],
)
def test_request_is_repeated_with_the_same_key_after_a_passing_fault(fault: Answer | str) -> None:
    fake, pauses = FakeHttp(fault, fault, OK), _Pauses()
    with http_hub(fake) as endpoint:
        client = HubClient(lambda: endpoint, sleep=pauses)
        assert client.post("/api/v1/messages", {"a": 1}) == {"fine": True}
        client.close()
    keys = {request["headers"]["idempotency-key"] for request in fake.requests}
    assert len(fake.requests) == 3
    assert len(keys) == 1
    assert len(pauses) == 2


def test_retry_after_is_honoured_and_the_finer_figure_wins() -> None:
    limited: Answer = (429, {"Retry-After": "1"}, {"error": "x", "details": {"retry_after": 0.25}})
    fake, pauses = FakeHttp(limited, BUSY, OK), _Pauses()
    with http_hub(fake) as endpoint:
        HubClient(lambda: endpoint, sleep=pauses).post("/x", {})
    assert pauses == [0.25, 1.0]


def test_retries_are_limited_in_attempts_and_seconds() -> None:
    fake, pauses = FakeHttp(BUSY), _Pauses()
    with http_hub(fake) as endpoint:
        with pytest.raises(Refused):
            HubClient(lambda: endpoint, Retry(attempts_max=4), pauses).post("/x", {})
        assert len(fake.requests) == 4
        with pytest.raises(Refused):
            HubClient(lambda: endpoint, Retry(100, wait_seconds_max=2.5), pauses).post("/x", {})
        assert len(fake.requests) == 4 + 3


def test_hub_is_located_again_after_it_moved() -> None:
    first, second = FakeHttp(OK, "hang up"), FakeHttp(OK)
    with http_hub(first) as old, http_hub(second) as new:
        endpoints = [old, new]
        client = HubClient(lambda: endpoints.pop(0), sleep=_Pauses())
        client.post("/x", {})
        client.post("/x", {})
        client.close()
    assert (len(first.requests), len(second.requests)) == (2, 1)


def test_missing_hub_raises_unless_client_waits_for_restart() -> None:
    nobody = Endpoint("127.0.0.1", 1)
    pauses = _Pauses()
    with pytest.raises(HubNotRunning):
        HubClient(lambda: nobody, sleep=pauses).get("/x")
    assert pauses == []
    with pytest.raises(Invalid, match="can't be sent as UTF-8"):
        HubClient(lambda: nobody).post("/x", {"text": "\ud800"})
    fake, messages = FakeHttp(OK), list[str]()
    with http_hub(fake) as endpoint:
        endpoints = [nobody, nobody, endpoint]
        HubClient(lambda: endpoints.pop(0), PATIENT, pauses, messages.append).get("/x")
    assert len(pauses) == 2
    hint = "waiting. Hint: start one with 'agentlipd up'"
    assert messages == [f"no hub answers at {nobody.url}; {hint}"], "once for each wait"


def test_token_is_sent_only_in_the_header() -> None:
    fake = FakeHttp(OK)
    with http_hub(fake) as endpoint:
        assert endpoint.token is not None
        assert endpoint.token not in repr(endpoint)
        HubClient(lambda: endpoint).get("/api/v1/channels", limit=3, before_id=None)
    assert fake.requests[0]["headers"]["authorization"] == f"Bearer {endpoint.token}"
    assert fake.requests[0]["path"] == "/api/v1/channels?limit=3"
