"""What waits for all clients together is limited; the largest and oldest make room."""

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
def hold(clock, cut):
    """Begins to hold bytes under a name; the share."""
    budget = UnsentBudget(100, clock)

    def begin(name, size):
        share = budget.share("http", lambda: cut.append(name))
        share.hold(size)
        return share

    begin.budget = budget
    return begin


def test_the_total_follows_what_is_held(hold):
    one, two = hold("one", 40), hold("two", 30)
    one.hold(10)
    assert hold.budget.total == 40
    two.hold(0)
    assert hold.budget.total == 10
    one.hold(0)
    assert hold.budget.total == 0


def test_the_largest_that_waits_longest_is_cut_off_first(hold, clock, cut):
    hold("old and small", 10)
    hold("old and large", 50)
    clock.seconds = 10
    hold("new and large", 40)
    assert cut == []
    hold("new", 30)
    assert cut == ["old and large"]
    assert hold.budget.total == 80


def test_reading_a_little_does_not_make_a_client_young_again(hold, clock, cut):
    dripping = hold("dripping", 60)
    clock.seconds = 10
    hold("newer", 40)
    dripping.hold(59)
    clock.seconds = 11
    hold("newest", 40)
    assert cut == ["dripping"]


def test_as_many_as_needed_are_cut_off_and_hold_nothing_afterwards(hold, clock, cut):
    shares = [hold(number, 25) for number in range(4)]
    clock.seconds = 5
    hold("large", 90)
    assert sorted(cut) == [0, 1, 2, 3]
    for share in shares:
        share.hold(50)
    assert hold.budget.total == 90
    assert len(cut) == 4


def test_a_single_client_is_not_cut_off(hold, cut):
    hold("alone", 1000)
    assert cut == []


def test_an_answer_is_refused_until_somebody_has_waited_long_enough(hold, clock, cut):
    hold("one", 60)
    hold("two", 40)
    with pytest.raises(TooManyUnsentBytes) as refused:
        hold.budget.admit(50)
    assert (refused.value.retry_after, cut) == (1.0, [])
    clock.seconds = 2
    hold.budget.admit(50)
    assert cut == ["one"]
    assert hold.budget.total == 40


def test_an_answer_larger_than_the_limit_passes_when_nothing_waits(hold):
    hold.budget.admit(1000)


class Sized:
    """Answers every request with so many bytes."""

    def __init__(self, size):
        self._size = size

    def on_get(self, _req, resp):
        reply_bytes(resp, b"x" * self._size)

    on_post = on_get


def test_only_large_answers_to_reads_are_refused(clock):
    budget = UnsentBudget(LARGE_BYTES, clock)
    budget.share("http", lambda: None).hold(LARGE_BYTES)
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
