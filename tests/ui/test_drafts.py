"""Texts that a person writes survive conflicts and reloads, and are not for the next person."""

import pytest

from tests.support.servedhub import serve
from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow

STORED = "Object.keys(localStorage).filter((each) => each.startsWith('agentlip.ui.draft.')).length"
EDIT = '.actions button[aria-label^="Edit"]'
FIELD = "dialog textarea"
COMPOSE = ".compose textarea"
KEEP_SOCKETS = """
window.sockets = [];
window.WebSocket = class extends WebSocket {
  constructor(...given) { super(...given); window.sockets.push(this); }
};
"""
HOLD_EVENTS = "window.sockets.forEach((each) => { each.onmessage = null; })"


@pytest.fixture
def hub(tmp_path):
    with serve(tmp_path) as hub:
        yield hub


def show(page, topic):
    page.open()
    page.topic(*topic)
    page.is_live()


def test_conflicting_edit_shows_both_texts_and_keeps_mine(hub, topic):
    message = hub.send(topic[1], "at first")["message"]
    with ui_page(hub) as page:
        show(page, topic)
        begin_edit(page, "my text")
        edit_elsewhere(hub, message, "their text")
        page.sees("their text", "dialog")
        page.sees("Changed meanwhile", "dialog")
        assert page.tab.evaluate(f"document.querySelector('{FIELD}').value") == "my text"
        page.click("dialog button", "Save my text")
        page.sees("my text", ".list")
        page.lacks("dialog")
        assert stored_text(hub, message) == ("my text", 3)


def test_conflict_that_the_page_did_not_see_coming_can_be_resolved(hub, topic):
    """The change is on its way to the page when the person saves."""
    message = hub.send(topic[1], "at first")["message"]
    with ui_page(hub) as page:
        page.tab.call("Page.addScriptToEvaluateOnNewDocument", source=KEEP_SOCKETS)
        show(page, topic)
        page.tab.evaluate(HOLD_EVENTS)
        begin_edit(page, "my text")
        edit_elsewhere(hub, message, "their text")
        page.click("dialog .primary", "Save")
        page.sees("VERSION_CONFLICT", "dialog")
        page.sees("their text", "dialog")
        page.click("dialog button", "Save my text")
        page.lacks("dialog")
        assert stored_text(hub, message) == ("my text", 3)
        assert all("409" in each for each in page.tab.problems)


def test_their_text_is_kept_if_a_person_prefers_it(hub, topic):
    message = hub.send(topic[1], "at first")["message"]
    with ui_page(hub) as page:
        show(page, topic)
        begin_edit(page, "my text")
        edit_elsewhere(hub, message, "their text")
        page.click("dialog button", "Keep the saved text")
        page.lacks("dialog")
        page.sees("their text", ".list")
        assert stored_text(hub, message) == ("their text", 2)
        assert page.tab.evaluate(STORED) == 0


def test_message_deleted_during_an_edit_leaves_no_text(hub, topic):
    message = hub.send(topic[1], "a secret")["message"]
    with ui_page(hub) as page:
        show(page, topic)
        begin_edit(page, "a secret, edited")
        hub.http.patch(f"/api/v1/messages/{message['id']}", {"op": "delete", "actor": "ada"})
        page.sees("Deleted by ada", "dialog")
        page.press("Escape")
        page.lacks("dialog")
        page.misses("a secret")
        assert page.tab.evaluate(STORED) == 0


def test_drafts_survive_a_reload_and_end_with_the_session(hub, topic):
    hub.send(topic[1], "at first")
    with ui_page(hub) as page:
        show(page, topic)
        page.fill(".compose textarea", "half a thought")
        begin_edit(page, "half an edit")
        page.tab.reload()
        page.has(".compose textarea")
        assert value(page, ".compose textarea") == "half a thought"
        page.click(EDIT)
        page.has("dialog[open]")
        assert value(page, FIELD) == "half an edit"
        page.press("Escape")
        page.lacks("dialog")
        page.fill(".compose textarea", "a whole thought")
        page.press("Enter")
        page.sees("a whole thought", ".list")
        until(lambda: page.tab.evaluate(STORED) == 1, 20, "the sent draft is gone")
        page.go("#/sign-in")
        page.click("main button", "Sign out")
        page.sees("Sign in", "h1")
        until(lambda: page.tab.evaluate(STORED) == 0, 20, "the drafts are gone")


def test_words_typed_during_a_send_stay(hub, topic):
    with ui_page(hub) as page:
        show(page, topic)
        slow = {"offline": False, "latency": 300, "downloadThroughput": -1, "uploadThroughput": -1}
        page.tab.call("Network.emulateNetworkConditions", **slow)
        page.fill(COMPOSE, "first")
        page.press("Enter")
        page.tab.call("Input.insertText", text=", second")
        page.press("Escape")
        page.sees("first", ".list")
        page.has(".send button:not(:disabled)")
        assert value(page, COMPOSE) == ", second"
        page.lacks(f"{COMPOSE}:focus")
        assert page.count(".message") == 1


def test_next_person_does_not_see_the_drafts(hub, topic):
    hub.send(topic[1], "at first")
    body = {"name": "grace", "scopes": ["hub:read", "hub:post"]}
    grace = hub.made(hub.http.post("/api/v1/tokens", body))["token"]["id"]
    with ui_page(hub) as page:
        show(page, topic)
        page.fill(".compose textarea", "for ada only")
        page.sign_in(grace)
        page.sees("grace", "header")
        page.topic(*topic)
        page.has(".compose textarea")
        assert value(page, ".compose textarea") == ""


def begin_edit(page, text):
    page.click(EDIT)
    page.has(f"{FIELD}:focus")
    page.fill(FIELD, text)


def value(page, selector):
    return page.tab.evaluate(f"document.querySelector('{selector}').value")


def edit_elsewhere(hub, message, text):
    command = {"op": "edit", "content_raw": text}
    assert hub.http.patch(f"/api/v1/messages/{message['id']}", command).status == 200


def stored_text(hub, message):
    (row,) = hub.rows("SELECT content_raw, version FROM messages WHERE id = ?", message["id"])
    return tuple(row)
