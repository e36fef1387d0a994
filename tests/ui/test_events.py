"""The event log in a real browser: all of it can be reached, and a flood freezes nothing."""

import pytest

from tests.support.until import until

pytestmark = pytest.mark.slow

EVENTS = 5_000
ROWS_MAX = 300
COUNT_DRAWS = """
void (() => {
  window.draws = window.rows = 0;
  new MutationObserver(() => {
    window.draws += 1;
    window.rows = Math.max(window.rows, document.querySelectorAll('.list .row').length);
  }).observe(document.querySelector('.list'), { childList: true, subtree: true });
})()
"""
FIRST = "document.querySelector('.list .number')?.textContent"
TOP = "document.querySelector('.list').scrollTop"


@pytest.fixture
def topic(hub, request):
    return hub.channel_with_topic(request.node.name[:90])[1]


def show(page, query=""):
    page.go(f"#/events{query}")
    page.is_live()
    page.has(".list .event")


def test_flood_is_drawn_by_the_frame_and_followed(hub, page, topic):
    hub.send(topic, "before")
    show(page)
    page.tab.evaluate(COUNT_DRAWS)
    hub.send_many(topic, [f"flood {number}" for number in range(EVENTS)])
    page.sees(f"flood {EVENTS - 1}", ".list")
    assert page.tab.evaluate("window.draws") < EVENTS / 5
    assert page.tab.evaluate("window.rows") < ROWS_MAX


def test_all_older_events_are_reached_by_scrolling(hub, page, topic):
    hub.send_many(topic, [f"old {number}" for number in range(700)])
    show(page, f"?topic_id={topic}")
    page.sees("old 699", ".list")
    until(
        lambda: page.tab.evaluate(f"void ({TOP} = 0)") or "topic.created" in page.text(".list"), 60,
        "the first event is reached",
    )  # fmt: skip
    numbers = page.tab.evaluate(
        "[...document.querySelectorAll('.list .number')].map((each) => Number(each.textContent))"
    )
    assert numbers == sorted(set(numbers))


def test_reader_who_scrolled_up_stays_while_events_arrive(hub, page, topic):
    hub.send_many(topic, [f"old {number}" for number in range(120)])
    show(page)
    page.sees("old 119", ".list")
    page.tab.evaluate(f"void ({TOP} -= 800)")
    page.misses("old 119", ".list")
    hub.send_many(topic, [f"new {number}" for number in range(6)])
    page.sees("6 new", ".newer")
    page.misses("new 5", ".list")
    page.click(".newer button")
    page.sees("new 5", ".list")
    page.lacks(".newer")


def test_linked_event_has_its_neighbours_and_leads_to_the_newest(hub, page, topic):
    hub.send_many(topic, [f"old {number}" for number in range(400)])
    linked = hub.head - 300
    show(page, f"?event={linked}")
    page.sees("old 99", ".event:has([aria-expanded=true])")
    until(
        lambda: page.tab.evaluate(f"void ({TOP} += 500)") or "old 399" in page.text(".list"), 60,
        "the newest event is reached",
    )  # fmt: skip
    page.go("#/search")
    page.sees("Search", "h1")
    show(page, f"?event={linked}")
    page.click(".newer button")
    page.sees("old 399", ".list")
    hub.send(topic, "live again")
    page.sees("live again", ".list")
