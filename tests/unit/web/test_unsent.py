"""Unsent bytes of all clients are limited; the largest and oldest shares are cut off."""

import pytest

from appliance.kernel.route import OPEN, Operation, Route
from appliance.web.media import reply_bytes
from appliance.web.unsent import LARGE_BYTES, TooManyUnsentBytes, UnsentBudget
from tests.support.http import TOKEN, Client, app_of


class Clock:
    seconds = 0.0

    def monotonic(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cut():
    return []


@pytest.fixture
def share_of(clock, cut):
    """Begins to hold bytes under a name; the share."""
    budget = UnsentBudget(100, clock)

    def begin(name, size):
        share = budget.share("http", lambda: cut.append(name))
        share.set_size(size)
        return share

    begin.budget = budget
    return begin


def test_largest_and_oldest_share_is_cut_off_first(share_of, clock, cut):
    share_of("old and small", 10)
    share_of("old and large", 50)
    clock.seconds = 10
    share_of("new and large", 40)
    assert cut == []
    share_of("new", 30)
    assert cut == ["old and large"]
    assert share_of.budget.total == 80


def test_slow_reading_does_not_reset_the_age_of_a_share(share_of, clock, cut):
    dripping = share_of("dripping", 60)
    clock.seconds = 10
    share_of("newer", 40)
    dripping.set_size(59)
    clock.seconds = 11
    share_of("newest", 40)
    assert cut == ["dripping"]


def test_large_response_is_refused_until_a_client_has_waited_long_enough(share_of, clock, cut):
    share_of("one", 60)
    share_of("two", 40)
    with pytest.raises(TooManyUnsentBytes) as refused:
        share_of.budget.admit(50)
    assert (refused.value.retry_after, cut) == (1.0, [])
    clock.seconds = 2
    share_of.budget.admit(50)
    assert cut == ["one"]
    assert share_of.budget.total == 40


class Sized:
    """Answers every request with so many bytes."""

    def __init__(self, size):
        self._size = size

    def on_get(self, _req, resp):
        reply_bytes(resp, b"x" * self._size)

    on_post = on_get


def test_only_large_responses_to_reads_are_refused(clock):
    budget = UnsentBudget(LARGE_BYTES, clock)
    budget.share("http", lambda: None).set_size(LARGE_BYTES)
    read = Operation(OPEN, "reads")
    routes = [
        Route("/large", Sized(LARGE_BYTES + 1), {"GET": read, "POST": Operation(OPEN, "changes")}),
        Route("/small", Sized(LARGE_BYTES), {"GET": read, "POST": read}),
        Route(
            "/probe",
            Sized(LARGE_BYTES + 1),
            {"GET": Operation(OPEN, "probes", probe=True), "POST": read},
        ),
        Route(
            "/scrape",
            Sized(LARGE_BYTES + 1),
            {"GET": Operation("metrics:read", "scrapes"), "POST": read},
        ),
    ]
    client = Client(app_of(routes, unsent=budget), TOKEN)
    refused = client.get("/large")
    assert (refused.status_code, refused.json["code"]) == (503, "TOO_MANY_UNSENT_BYTES")
    assert refused.headers["retry-after"] == "1"
    assert refused.json["hint"]
    for path in ("/small", "/probe", "/scrape"):
        assert client.get(path).status_code == 200, path
    assert client.head("/large").status_code == 200
    assert client.post("/large").status_code == 200
