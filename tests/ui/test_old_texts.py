"""No text that somebody deleted or replaced stays in an open page of the web UI."""

import pytest

from tests.support.uipage import ui_page

pytestmark = pytest.mark.slow

PASSED = 20_500
"""Messages that pass through the tab, more than the page ever remembered."""


def test_change_after_many_messages_reaches_topics_read_before(hub):
    topics = [hub.channel_with_topic(name) for name in ("read before", "busy", "opened last")]
    read, busy, last = (topic for _, topic in topics)
    deleted, edited = (hub.send(read, text)["message"]["id"] for text in ("a secret", "a typo"))
    with ui_page(hub) as page:
        page.topic(*topics[0])
        page.sees("a secret", ".list")
        page.is_live()
        hub.send_many(busy, [f"number {number} passes" for number in range(PASSED)])
        hub.send(read, "all of them have passed")
        page.sees("all of them have passed", ".list")
        page.topic(*topics[2])
        hub.http.patch(f"/api/v1/messages/{deleted}", {"op": "delete", "actor": "ada"})
        hub.http.patch(f"/api/v1/messages/{edited}", {"op": "edit", "content_raw": "corrected"})
        hub.send(last, "all changes have arrived")
        page.sees("all changes have arrived", ".list")
        page.topic(*topics[0])
        page.sees("Deleted by ada", ".list")
        page.sees("corrected", ".list")
        page.misses("a secret", ".list")
        page.misses("a typo", ".list")


def test_deleted_message_leaves_the_search_results(hub):
    _, topic_id = hub.channel_with_topic("searched")
    message = hub.send(topic_id, "xylophone for sale")["message"]
    with ui_page(hub) as page:
        page.is_live()
        page.go("#/search?q=xylophone")
        page.sees("for sale", ".results")
        hub.http.patch(f"/api/v1/messages/{message['id']}", {"op": "delete", "actor": "ada"})
        page.misses("for sale", ".results")


HOLD_PAGES = """
void (() => {
  const real = window.fetch;
  const held = new Promise((resolve) => { window.letGo = resolve; });
  window.fetch = async (path, ...more) => {
    const response = await real(path, ...more);
    if (new URL(path, location).pathname === "/api/v1/messages") await held;
    return response;
  };
})()
"""


def test_page_older_than_a_deletion_does_not_bring_the_text_back(hub):
    elsewhere, topic = (hub.channel_with_topic(name) for name in ("elsewhere", "slow page"))
    message = hub.send(topic[1], "a late secret")["message"]
    hub.send(topic[1], "stays")
    with ui_page(hub) as page:
        page.topic(*elsewhere)
        page.is_live()
        page.sees("No messages yet")
        page.tab.evaluate(HOLD_PAGES)
        page.topic(*topic)
        page.sees("Loading messages")
        hub.http.patch(f"/api/v1/messages/{message['id']}", {"op": "delete", "actor": "ada"})
        hub.topic(topic[0], "made after the deletion")
        page.sees("made after the deletion", ".sidebar")
        page.tab.evaluate("letGo()")
        page.sees("Deleted by ada", ".list")
        page.misses("a late secret", ".list")
