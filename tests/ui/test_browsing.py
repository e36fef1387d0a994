"""Channels, topics and messages in a real browser: every screen and action, live."""

import pytest

from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(hub):
    with ui_page(hub) as page:
        yield page


@pytest.fixture
def page(hub, browser):
    """The same browser for all tests; each of them answers for its own errors in the console."""
    yield browser
    problems, requests = browser.tab.problems[:], browser.tab.requests[:]
    browser.tab.problems.clear()
    browser.tab.requests.clear()
    assert problems == []
    assert all(each.startswith((hub.url, "about:")) for each in requests)


def shown(page, topic):
    page.open()
    page.topic(*topic)
    page.is_live()


def test_channel_topic_and_message_are_made_in_the_page(hub, page):
    page.open()
    page.click(".heading button")
    page.fill("dialog input", "made here")
    page.click("dialog .primary")
    page.sees("made here", "h1")
    page.click("main .primary", "New topic")
    page.fill("dialog input", "first topic")
    page.click("dialog .primary")
    page.sees("No messages yet")
    page.fill(".compose textarea", "hello from the page")
    page.press("Enter")
    page.sees("hello from the page", ".list")
    assert hub.rows("SELECT sender, content_raw FROM messages")[-1] == (
        "ada",
        "hello from the page",
    )
    assert page.text(".compose textarea") == ""


def test_messages_of_others_appear_live(hub, page, topic):
    shown(page, topic)
    hub.send(topic[1], "from an agent")
    page.sees("from an agent", ".list")
    assert page.text(".message .who strong") == "tester"
    assert "via server" in page.text(".message .who")


def test_two_pages_see_each_others_changes(hub, page, topic):
    message = hub.send(topic[1], "before")["message"]
    shown(page, topic)
    with ui_page(hub) as other:
        shown(other, topic)
        other.sees("before", ".list")
        page.click('.actions button[aria-label^="Edit"]')
        page.fill("dialog textarea", "after")
        page.click("dialog .primary")
        other.sees("after", ".list")
        assert "edited" in other.text(".message")
        other.click('.actions button[aria-label^="Delete"]')
        other.click("dialog .danger")
        page.sees("Deleted by ada", ".list")
        page.misses("after", ".list")
        assert page.count('.actions button[aria-label^="Edit"]') == 0
    assert hub.rows("SELECT version FROM messages WHERE id = ?", message["id"]) == [(3,)]


def test_messages_moved_by_others_change_place(hub, page, topic):
    other = hub.topic(topic[0], "target")
    message = hub.send(topic[1], "wanders")["message"]
    hub.send(other, "was there")
    shown(page, (topic[0], other))
    page.sees("was there", ".list")
    command = {"op": "move_topic", "to_topic_id": other, "mode": "all"}
    assert hub.http.patch(f"/api/v1/messages/{message['id']}", command).status == 200
    page.sees("wanders", ".list")


def test_unread_messages_are_counted_through_a_reload(hub, page, topic):
    other = hub.topic(topic[0], "quiet")
    shown(page, (topic[0], other))
    hub.send_many(topic[1], ["one", "two"])
    page.sees("2", ".topics a.unread .badge")
    page.tab.evaluate("dispatchEvent(new Event('pagehide'))")
    page.tab.open("about:blank")
    hub.send(topic[1], "three")
    shown(page, (topic[0], other))
    page.sees("3", ".topics a.unread .badge")
    page.click(".topics a.unread")
    page.sees("three", ".list")
    until(lambda: page.count(".topics a.unread") == 0, 20, "everything is read")


def test_page_continues_without_a_gap_after_a_kill(hub, page, topic):
    hub.send(topic[1], "before the kill")
    shown(page, topic)
    page.sees("before the kill", ".list")
    port = hub.port
    hub.kill()
    page.sees("Reconnecting", ".banner")
    hub.start("--port", str(port))
    hub.send(topic[1], "while it was away")
    page.is_live()
    page.sees("while it was away", ".list")
    hub.send(topic[1], "and afterwards")
    page.sees("and afterwards", ".list")
    assert page.text(".list").count("before the kill") == 1
    page.tab.problems.clear()  # the failed connections
