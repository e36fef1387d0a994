"""Every action of the hub's screens by the keyboard alone."""

import json

import pytest

from tests.support.servedhub import serve
from tests.support.uipage import ui_page

pytestmark = pytest.mark.slow

TABS_MAX = 120
FOCUSED = """
(() => { const e = document.activeElement;
  return e.matches(%s) && `${e.textContent}|${e.ariaLabel}`.includes(%s); })()
"""


class Keyboard:
    """A person without a mouse at a page."""

    def __init__(self, page):
        self.page = page
        self.press = page.press

    def type(self, text):
        self.page.tab.call("Input.insertText", text=text)

    def reach(self, selector, text=""):
        """By the tab key, as often as it takes."""
        focused = FOCUSED % (json.dumps(selector), json.dumps(text))
        for _ in range(TABS_MAX):
            self.press("Tab")
            if self.page.tab.evaluate(focused):
                return
        pytest.fail(f"{selector} {text!r} can't be reached by the tab key")

    def use(self, selector, text=""):
        self.page.has(selector)
        self.reach(selector, text)
        self.press("Enter")

    def answer(self, text):
        """Fill in the field of a dialog that has the focus, and confirm."""
        self.page.has("dialog[open] :is(input, textarea):focus")
        self.type(text)
        self.press("Enter")
        self.page.lacks("dialog")


def test_every_action_works_without_a_mouse(tmp_path):
    with serve(tmp_path) as hub, ui_page(hub) as page:
        keys = Keyboard(page)
        page.open()
        page.sees("This workspace is empty")
        keys.use("button", "New channel")
        keys.answer("by keys")
        page.sees("by keys", "h1")
        keys.use("button", "New topic")
        keys.answer("from")
        page.sees("No messages yet")
        write_and_change(keys)
        move_and_delete(keys)
        rename_and_show_attachments(keys)
        search_and_events(keys)
        leave(keys)
        assert hub.rows("SELECT content_raw FROM messages ORDER BY created_at, id") == [
            ("first edited",), ("[deleted]",),
        ]  # fmt: skip


def write_and_change(keys):
    page = keys.page
    for text in ("first", "second"):
        keys.press("c")
        page.has(".compose textarea:focus")
        keys.type(text)
        keys.press("Enter")
        page.sees(text, ".list")
        keys.press("Escape")
        page.lacks("textarea:focus")
    keys.press("k", "k")
    page.sees("first", ".message.selected")
    keys.press("e")
    page.has("dialog[open] textarea:focus")
    keys.press("End")
    keys.type(" edited")
    keys.use("dialog button", "Save")
    page.lacks("dialog")
    page.sees("first edited", ".list")
    keys.press("i")
    page.sees("Version", ".details")
    keys.use("button", "Close details")
    page.lacks(".details")
    keys.press("l")
    page.has("dialog input:focus")  # this browser allows no copying
    keys.press("Enter")
    page.lacks("dialog")


def move_and_delete(keys):
    page = keys.page
    keys.use(".channel a", "by keys")
    keys.use("button", "New topic")
    keys.answer("into")
    keys.use(".topics a", "from")
    page.sees("second", ".list")
    keys.press("j")
    page.has(".message.selected")
    keys.press("k")
    page.sees("first edited", ".message.selected")
    keys.press("m")
    page.sees("1 message moves", "dialog")
    keys.reach("dialog input")
    keys.press("ArrowDown")
    page.sees("2 messages move", "dialog")
    keys.reach("dialog select")
    keys.press("ArrowDown")
    keys.use("dialog button", "Move")
    page.sees("Moved 2 messages")
    keys.use(".topics a", "into")
    page.sees("second", ".list")
    keys.press("k")
    page.sees("second", ".message.selected")
    keys.press("d")
    page.has("dialog[open]")
    keys.use("dialog button", "Delete")
    page.lacks("dialog")
    page.sees("Deleted by ada", ".list")


def rename_and_show_attachments(keys):
    page = keys.page
    keys.use("button", "Rename")
    keys.answer("!")
    page.sees("into!", "h1")
    for _ in range(2):
        shown = page.count(".pane")
        keys.use("button", "Attachments")
        (page.lacks if shown else page.has)(".pane")


def search_and_events(keys):
    page = keys.page
    keys.press("/")
    page.has("#query:focus")
    keys.type("edited")
    keys.press("Enter")
    keys.use(".results a", "first")
    page.sees("first edited", ".message.selected")
    keys.press("g", "e")
    keys.use(".event .fold")
    page.has(".event pre")
    keys.reach(".filters select")
    keys.press("ArrowDown")
    page.misses("message.created", ".list")
    keys.use(".event a", "Open")
    page.sees("by keys", "h1")


def leave(keys):
    page = keys.page
    keys.use(".person")
    keys.use("button", "Light or dark")
    page.has("[data-theme]")
    page.press("Escape")
    page.lacks("dialog")
    keys.press("?")
    page.sees("Next message", "dialog[open]")
    keys.press("Escape")
    page.lacks("dialog")
    keys.press("n")
    page.sees("No unread messages")
    keys.press("g", "h")
    page.sees("Home", "h1")
    keys.press("g", "s")
    keys.use("button", "Sign out")
    page.sees("Sign in", "h1")
