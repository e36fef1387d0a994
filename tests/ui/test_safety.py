"""The web UI in a hostile world: its policy, its libraries, and text that looks like markup."""

import hashlib
import json
import sqlite3
import time
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from appliance.ui.resources import POLICY, UiFiles
from tests.support.bus import BusFixture
from tests.support.hostile_texts import ADDRESSES, MARKUP
from tests.support.operated_workspace import RUN, fill_all
from tests.support.servedhub import serve
from tests.support.uipage import ui_page

pytestmark = pytest.mark.slow

STATIC = Path(__file__).parents[2] / "appliance" / "ui" / "static"
WIRE_BYTES_MAX = 200_000
LINES_MAX = 5_000


@pytest.mark.parametrize("path", ["/ui/", "/ui", "/ui/main.js", "/ui/vendor/preact.js"])
def test_every_file_has_the_policy_and_needs_no_token(hub, path):
    client = hub.connect(token=None)
    answer = client.get(path)
    assert answer.status == 200
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status, again.raw) == (304, b"")
    client.close()


def test_policy_allows_no_inline_code_and_no_other_address():
    directives = dict(each.split(maxsplit=1) for each in POLICY.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["require-trusted-types-for"] == "'script'"
    assert not {"unsafe-inline", "unsafe-eval", "http:", "https:", "*"} & {
        source.strip("'") for text in directives.values() for source in text.split()
    }


def test_vendored_libraries_are_the_recorded_ones():
    folder = STATIC / "vendor"
    recorded = tomllib.loads((folder / "VENDOR.toml").read_text("utf-8"))["file"]
    assert {each["name"] for each in recorded} == {path.name for path in folder.glob("*.js")}
    licences = (folder / "licences.txt").read_text("utf-8")
    for each in recorded:
        text = (folder / each["name"]).read_text("utf-8")
        assert hashlib.sha256(text.encode()).hexdigest() == each["sha256"], each["name"]
        for before, after in each.get("replaced", {}).items():
            text = text.replace(after, before)
        assert hashlib.sha256(text.encode()).hexdigest() == each["source_sha256"], each["name"]
        assert f"{each['package']} {each['version']}" in licences


def test_whole_page_is_small():
    loaded = [file for path, file in UiFiles().by_path.items() if not path.endswith(".txt")]
    assert sum(len(file.compressed) for file in loaded) <= WIRE_BYTES_MAX
    own = [path for path in STATIC.iterdir() if path.suffix in (".js", ".css")]
    lines = {path.name: path.read_text("utf-8").count("\n") for path in own}
    assert sum(lines.values()) <= LINES_MAX, lines


def test_scripts_never_write_markup():
    text = "".join(path.read_text("utf-8") for path in STATIC.glob("*.js"))
    assert "export function" in text
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in text


LINKS = """
[...document.body.querySelectorAll('[href], [src], [action], [formaction], [srcdoc]')]
  .flatMap((each) => [...each.attributes])
  .filter((each) => ['href', 'src', 'action', 'formaction', 'srcdoc'].includes(each.name))
  .map((each) => each.value)
"""
ELEMENTS = "document.querySelectorAll('#app :is(script, img, iframe, svg, style, math, b)').length"


def fill_with_hostile_texts(hub):
    """In every field that a client or another writer of the database can fill."""
    channel_id = hub.made(
        hub.http.post("/api/v1/channels", {"name": MARKUP[0], "description": MARKUP[1]})
    )["channel"]["id"]
    topic_id = hub.topic(channel_id, MARKUP[2])
    for text in (*MARKUP, *ADDRESSES, 'see https://example.com/"onmouseover=pwned()//'):
        command = {"topic_id": topic_id, "sender": text[:200], "content_raw": text}
        message = hub.made(hub.http.post("/api/v1/messages", command))["message"]
    deletion = {"op": "delete", "actor": MARKUP[3]}
    assert hub.http.patch(f"/api/v1/messages/{message['id']}", deletion).status == 200
    path = f"/api/v1/topics/{topic_id}/attachments"
    for text in MARKUP:
        value = {"url": "https://example.com/", "title": text, text: text}
        hub.made(hub.http.post(path, {"kind": text[:100], "key": text[:100], "value_json": value}))
    with closing(sqlite3.connect(hub.datadir.database("hub"))) as foreign, foreign:
        for number, address in enumerate(ADDRESSES):
            value = json.dumps({"url": address, "title": address})
            foreign.execute(
                "INSERT INTO topic_attachments SELECT 'att_' || ?, topic_id, 'url', NULL, ?, ?,"
                " NULL, created_at FROM topic_attachments LIMIT 1",
                (f"foreign{number}", value, f"foreign {number}"),
            )
    return channel_id, topic_id


def test_text_of_others_is_never_markup_or_code(tmp_path):
    with serve(tmp_path) as hub, ui_page(hub) as page:
        channel_id, topic_id = fill_with_hostile_texts(hub)
        page.tab.call(
            "Page.addScriptToEvaluateOnNewDocument", source="window.pwned = () => window.hit = 1"
        )
        page.open()
        screens = {
            f"#/c/{channel_id}": MARKUP[2],
            f"#/c/{channel_id}/t/{topic_id}": "Deleted by",
            "#/events": "message.deleted",
            "#/search?q=pwned": MARKUP[0],
        }
        for address, text in screens.items():
            page.go(address)
            page.sees(text, "main")
            page.tab.evaluate(
                "document.querySelectorAll('.fold[aria-expanded=false]').forEach((e) => e.click())"
            )
            links = page.tab.evaluate(LINKS)
            strange = [each for each in links if not each.startswith(("#", "https://ex"))]
            assert strange == [], address
            assert page.tab.evaluate(ELEMENTS) == 0, address
            assert page.tab.evaluate("window.hit") is None, address
        assert page.tab.problems == []


def fill_operated_with_hostile_texts(hub):
    """What tokens, other programs on the bus, and receivers can write."""
    fill_all(hub)
    for number, text in enumerate(MARKUP):
        webhook = {"url": f"https://hooks.example.com/{number}", "description": text}
        hub.made(hub.http.post("/api/v1/webhooks", webhook))
        hub.made(hub.http.post("/api/v1/jobs/runs", RUN | {"job": f"j{number}", "error": text}))
        question = {"text": text, "sender": text[:100], "choices": [text[:100]]}
        hub.made(hub.http.post("/api/v1/asks", question))
    now = int(time.time() * 1000)
    with closing(BusFixture(hub.workspace).connection) as bus:
        for text in MARKUP:
            bus.execute(
                "INSERT INTO workers VALUES (?1, 'WORKING', ?1, ?1, ?1, ?2, ?2)", (text, now)
            )
            bus.execute(
                "INSERT INTO heartbeats (agent_id, ts_ms, status, current_task)"
                " VALUES (?1, ?2, ?1, ?1)", (text, now),
            )  # fmt: skip
            bus.execute(
                "INSERT INTO task_claims (task_id, claimed_by, claimed_at_ms, lease_until_ms)"
                " VALUES (?1, ?1, ?2, ?2 + 600000), ('x' || ?1, 'y' || ?1, ?2, ?2 + 600000)",
                (text, now),
            )
    with closing(sqlite3.connect(hub.datadir.database("outbox"))) as foreign, foreign:
        foreign.execute("UPDATE outbox SET last_error = ?", ("".join(MARKUP),))


def test_operated_text_of_others_is_never_markup_or_code(tmp_path):
    with serve(tmp_path) as hub, ui_page(hub) as page:
        fill_operated_with_hostile_texts(hub)
        page.tab.call(
            "Page.addScriptToEvaluateOnNewDocument", source="window.pwned = () => window.hit = 1"
        )
        page.open()
        for screen, text in {
            "operate?view=workers": MARKUP[0], "operate?view=webhooks": MARKUP[1],
            "operate?view=jobs": MARKUP[2], "operate?view=sends": MARKUP[0],
            "operate?view=findings": "dead letters", "asks": MARKUP[4],
        }.items():  # fmt: skip
            page.go(f"#/{screen}")
            page.sees(text, "main")
            page.tab.evaluate("void document.querySelector('tbody th a')?.click()")
            links = page.tab.evaluate(LINKS)
            assert [each for each in links if not each.startswith("#")] == [], screen
            assert page.tab.evaluate(ELEMENTS) == 0, screen
            assert page.tab.evaluate("window.hit") is None, screen
        assert page.tab.problems == []


def test_attachments_link_only_to_web_addresses(tmp_path):
    with serve(tmp_path) as hub, ui_page(hub) as page:
        page.open()
        channel_id, topic_id = fill_with_hostile_texts(hub)
        page.topic(channel_id, topic_id)
        page.sees("javascript:pwned()", ".attachments")
        links = page.tab.evaluate(
            "[...document.querySelectorAll('.attachments a[target]')]"
            ".map((each) => [each.protocol, each.rel])"
        )
        assert {tuple(each) for each in links} == {("https:", "noopener noreferrer nofollow")}
        assert len(links) >= len(MARKUP)
