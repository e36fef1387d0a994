"""No screen of the web UI has a serious barrier that axe finds, in light and in dark colors."""

import hashlib
import tomllib

import pytest

from tests.support.axe import AXE, is_accessible
from tests.support.operated_workspace import fill_all
from tests.support.servedhub import serve
from tests.support.uipage import ui_page

pytestmark = pytest.mark.slow

MENU = "[...document.querySelectorAll('.top nav a')].map((each) => each.hash)"


def test_vendored_files_are_the_recorded_ones():
    recorded = tomllib.loads((AXE / "VENDOR.toml").read_text("utf-8"))["file"]
    for file in recorded:
        content = (AXE / file["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file["sha256"]
    version = recorded[0]["version"]
    assert (AXE / "axe.min.js").read_text("utf-8").startswith(f"/*! axe v{version}\n")


def test_screens_of_an_empty_workspace(tmp_path):
    with serve(tmp_path) as hub, ui_page(hub) as page:
        page.open()
        page.sees("This workspace is empty")
        is_accessible(page.tab, "empty")
        menu = page.tab.evaluate(MENU)
        for address in {*menu, "#/sign-in", "#/c/none", "#/m/none"}:
            page.go(address)
            page.has("main :is(h1, .failure)")
            is_accessible(page.tab, address)
        hub.kill()
        page.has(".banner")
        is_accessible(page.tab, "without a server")


def test_topic_and_its_dialogs(hub):
    channel_id, topic_id = hub.channel_with_topic("accessible")
    hub.send_many(topic_id, ["first", "see https://example.com/a", "last"])
    message = hub.send(topic_id, "deleted later")["message"]
    hub.http.patch(f"/api/v1/messages/{message['id']}", {"op": "delete", "actor": "ada"})
    with ui_page(hub) as page:
        page.open()
        page.topic(channel_id, topic_id)
        page.sees("Deleted by ada", ".list")
        page.sees("example.com", ".attachments")
        is_accessible(page.tab, "topic")
        page.press("k", "k", "i")
        page.has(".details")
        is_accessible(page.tab, "details")
        for key in ("e", "m", "d", "?"):
            page.press(key)
            page.has("dialog[open]")
            page.misses("Counting")
            is_accessible(page.tab, f"dialog of {key}")
            page.press("Escape")
            page.lacks("dialog")
        page.go(f"#/c/{channel_id}")
        page.has(".cards")
        is_accessible(page.tab, "channel")
        page.go("#/search?q=first")
        page.has("mark")
        is_accessible(page.tab, "search")
        page.go("#/events")
        page.click(".event .fold")
        page.has(".event pre")
        is_accessible(page.tab, "events")
        page.tab.resize(400, 760)
        page.topic(channel_id, topic_id)
        page.has(".compose")
        is_accessible(page.tab, "topic on a phone")
        page.click(".menu")
        page.has(".with-menu")
        is_accessible(page.tab, "channels on a phone")


def test_operated_views_and_questions(tmp_path):
    with serve(tmp_path) as hub, ui_page(hub) as page:
        fill_all(hub)
        question = {"text": "Deploy?", "sender": "ci", "choices": ["yes"], "deadline_seconds": 600}
        hub.made(hub.http.post("/api/v1/asks", question))
        hub.made(hub.http.post("/api/v1/asks", question | {"choices": []}))
        page.go("#/")
        page.sees("Deploy?", ".home .ask")
        page.has("section[aria-label=Findings]")
        is_accessible(page.tab, "home")
        page.click("header button", "Go to")
        page.has(".palette [role=option]")
        is_accessible(page.tab, "palette")
        page.press("Escape")
        page.lacks(".palette")
        page.go("#/asks")
        page.sees("Deploy?", ".ask")
        is_accessible(page.tab, "asks")
        page.click(".ask button", "yes")
        page.sees("Undo", "main")
        is_accessible(page.tab, "an answer that can be undone")
        page.has(".asked")
        is_accessible(page.tab, "settled asks")
        page.go("#/operate")
        page.has(".tabs")
        views = page.tab.evaluate("[...document.querySelectorAll('.tabs a')].map((e) => e.hash)")
        for address in views:
            page.go(address)
            page.sees("As of", ".operate")
            page.tab.evaluate("void document.querySelector('tbody th a')?.click()")
            is_accessible(page.tab, address)
