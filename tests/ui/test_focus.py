"""Where the keyboard's focus goes, and what the web UI announces to screen readers."""

import pytest

from tests.support.axe import is_accessible
from tests.support.until import until

pytestmark = pytest.mark.slow

FOCUSED = "document.activeElement.ariaLabel || document.activeElement.textContent"
FOCUSED_TEXT = "document.activeElement.matches('.message') && document.activeElement.innerText"
OPENED_AT_ONCE = """
(async () => {
  [...document.querySelectorAll('button')].find((each) => each.textContent.includes(%r)).click();
  for (let turn = 0; turn < 5; turn += 1) await null; // the browser has no time for a key meanwhile
  return Boolean(document.activeElement.closest('dialog[open]'));
})()
"""
KEPT = "Object.keys(sessionStorage).filter((each) => each.includes('place')).length"
ANNOUNCED = "[...document.querySelectorAll('.heard')].map((each) => each.textContent).join()"


def show(hub, page, topic, count=30):
    hub.send_many(topic[1], [f"message {number}." for number in range(count)])
    page.topic(*topic)
    page.sees(f"message {count - 1}.", ".list")
    page.is_live()


def focused(page, text, expression=FOCUSED):
    until(lambda: text in (page.tab.evaluate(expression) or ""), 20, f"{text!r} has the focus")


@pytest.mark.parametrize("end", ["Escape", "Cancel"])
def test_focus_returns_to_the_button_that_opened_the_dialog(hub, page, topic, end):
    show(hub, page, topic)
    page.tab.evaluate("[...document.querySelectorAll('.bar button')][0].focus()")
    focused(page, "Rename")
    page.press("Enter")
    page.has("dialog[open] input:focus")
    if end == "Escape":
        page.press("Escape")
    else:
        page.click("dialog button", "Cancel")
    page.lacks("dialog")
    focused(page, "Rename")


@pytest.mark.parametrize("button", ["Rename", "Go to", "▾"])
def test_dialog_has_the_focus_before_the_next_key(hub, page, topic, button):
    show(hub, page, topic)
    assert page.tab.evaluate(OPENED_AT_ONCE % button)


def test_focus_returns_to_the_message_after_its_dialogs_and_the_keys(hub, page, topic):
    show(hub, page, topic)
    page.press("k", "k")
    focused(page, "message 28.", FOCUSED_TEXT)
    for key in ("e", "m", "?"):
        page.press(key)
        page.has("dialog[open]")
        page.press("Escape")
        page.lacks("dialog")
        focused(page, "message 28.", FOCUSED_TEXT)


def test_keys_move_the_focus_through_rows_that_were_not_drawn(hub, page, topic):
    show(hub, page, topic, 90)
    for _ in range(70):
        page.press("k")
    focused(page, "message 20.", FOCUSED_TEXT)
    page.press("j")
    focused(page, "message 21.", FOCUSED_TEXT)


def test_new_messages_are_announced_together(hub, page, topic):
    show(hub, page, topic)
    hub.send(topic[1], "a secret")
    until(lambda: page.tab.evaluate(ANNOUNCED) == "New message from tester", 20, "one is announced")
    hub.send_many(topic[1], ["one", "two", "three"])
    until(lambda: "3 new messages" in page.tab.evaluate(ANNOUNCED), 20, "three are announced")
    assert page.tab.evaluate("document.querySelector('.heard').ariaLive") == "polite"


def test_first_tab_stop_leads_to_the_messages(hub, page, topic):
    page.open()
    show(hub, page, topic)
    page.tab.evaluate("document.activeElement.blur()")
    page.press("Tab")
    focused(page, "Skip to messages")
    page.press("Enter")
    focused(page, "Messages")


def test_new_parts_of_a_topic_have_no_serious_barrier(hub, page, topic):
    show(hub, page, topic)
    page.tab.evaluate("void (document.querySelector('.list').scrollTop = 0)")
    page.sees("message 0.", ".list")
    until(lambda: page.tab.evaluate(KEPT) > 0, 20, "the page noted that the end was left")
    hub.send_many(topic[1], ["new one", "new two"])
    page.sees("2 new", ".newer")
    is_accessible(page.tab, "new messages below")
    page.click(".newer button")
    page.has(".first-new")
    is_accessible(page.tab, "line above new messages")
    page.press("k", "k", "e")
    page.has("dialog textarea:focus")
    page.fill("dialog textarea", "mine")
    message = page.tab.evaluate("location.hash").rpartition("/")[2]
    hub.http.patch(f"/api/v1/messages/{message}", {"op": "edit", "content_raw": "theirs"})
    page.sees("Changed meanwhile", "dialog")
    is_accessible(page.tab, "two texts")
    page.press("Escape")
    page.lacks("dialog")
    page.press("l")
    page.has("dialog input:focus")
    is_accessible(page.tab, "address to copy")
