"""Browsers that lack something: no clipboard over plain HTTP, or a clock that is wrong."""

import pytest

pytestmark = pytest.mark.slow

NO_CLIPBOARD = "Object.defineProperty(Navigator.prototype, 'clipboard', { get: () => undefined })"
WRONG_CLOCK = """
(() => {
  const Real = Date, by = %d * 3600000;
  window.Date = class extends Real {
    constructor(...given) { super(...(given.length ? given : [Real.now() + by])); }
    static now() { return Real.now() + by; }
  };
})()
"""
SELECTED = "getSelection().toString()"


def test_command_is_selected_where_the_clipboard_is_missing(page):
    page.tab.call("Page.addScriptToEvaluateOnNewDocument", source=NO_CLIPBOARD)
    page.open("#/start")
    page.click(".command button", "Copy: Post the first message")
    page.sees("The text is selected", ".notice")
    assert page.tab.evaluate(SELECTED).startswith("agentlip channel create general")


def test_link_is_shown_where_the_clipboard_is_missing(hub, page):
    topic = hub.channel_with_topic("linked")
    message = hub.send(topic[1], "to be linked")["message"]
    page.tab.call("Page.addScriptToEvaluateOnNewDocument", source=NO_CLIPBOARD)
    page.open()
    page.topic(*topic)
    page.click(".message .text")
    page.press("l")
    page.has("dialog input:focus")
    assert page.tab.evaluate(SELECTED).endswith(f"/m/{message['id']}")


@pytest.mark.parametrize(("hours", "text"), [(2, "2 h ahead of"), (-3, "3 h behind")])
def test_wrong_clock_is_named_once_and_no_event_is_blamed(hub, page, hours, text):
    topic = hub.channel_with_topic(f"clock {hours}")
    page.tab.call("Page.addScriptToEvaluateOnNewDocument", source=WRONG_CLOCK % hours)
    page.open()
    page.topic(*topic)
    page.is_live()
    page.sees(text, ".banner")
    page.click(".banner button", "Dismiss")
    message = hub.send(topic[1], "on time")["message"]
    page.sees("on time", ".list")
    page.misses("The clock jumped")
    assert page.count(".banner") == 0
    hub.http.patch(f"/api/v1/messages/{message['id']}", {"op": "delete", "actor": "ada"})
    page.sees("Deleted by ada, now", ".list")
