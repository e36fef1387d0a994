"""Home: what needs the person, and the alerts for questions."""

import pytest

from tests.support.operated_workspace import RUN, fill_sends
from tests.support.servedhub import serve
from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow

HOME = "section[aria-label='Home']"
RECORD_ALERTS = """
window.alerts = [];
window.Notification = class {
  static permission = 'default';
  static requestPermission = async () => (Notification.permission = 'granted');
  constructor(title, { body }) { window.alerts.push(`${title}: ${body}`); }
};
window.AudioContext = class {
  currentTime = 0;
  createOscillator() { return { frequency: {}, connect: (next) => next, stop() {},
    start() { window.alerts.push('tone'); } }; }
  createGain() { return { gain: {}, connect: (next) => next }; }
};
"""


@pytest.fixture
def hub(tmp_path):
    with serve(tmp_path) as hub:
        yield hub


def ask(hub, text, **more):
    hub.made(hub.http.post("/api/v1/asks", {"text": text, "sender": "deployer", **more}))


def test_home_without_work_says_so(hub):
    hub.channel_with_topic("general")
    with ui_page(hub) as page:
        page.go("#/")
        page.sees("Nothing needs you", HOME)
        assert page.tab.problems == []


def test_home_shows_questions_findings_jobs_and_unread_topics(hub):
    channel, quiet = hub.channel_with_topic("builds")
    busy = hub.topic(channel, "nightly run")
    with ui_page(hub) as page:
        page.go("#/")
        page.is_live()
        hub.send(quiet, "first line\nsecond line")
        hub.send_many(busy, ["started", "**failed** at link"])
        ask(hub, "Deploy?", choices=["yes"], topic_id=quiet)
        hub.made(hub.http.post("/api/v1/jobs/runs", RUN))
        fill_sends(hub)
        page.open()
        page.sees("Deploy?", "section[aria-label=Questions] .ask")
        page.sees("dead letters", "section[aria-label=Findings]")
        page.sees("ingest", "section[aria-label='Failed jobs']")
        page.sees("the bucket does not answer", "section[aria-label='Failed jobs']")
        rows = page.tab.evaluate(
            "[...document.querySelectorAll('.unread-topic')].map((e) => e.innerText)"
        )
        assert [("t" in row.split("\n")[0], "nightly" in row) for row in rows] == [
            (True, False), (True, True),
        ]  # fmt: skip
        assert "tester" in rows[1]
        assert "**failed** at link" in rows[1]
        assert page.tab.evaluate("document.title").startswith("(5) ")
        page.click(".unread-topic", "nightly run")
        page.sees("failed at link", ".list")


def test_unread_line_follows_an_edit_and_a_deletion(hub):
    _, topic = hub.channel_with_topic("general")
    with ui_page(hub) as page:
        page.go("#/")
        page.is_live()
        message = hub.send(topic, "as sent")["message"]
        page.sees("as sent", ".unread-topic")
        path = f"/api/v1/messages/{message['id']}"
        hub.http.patch(path, {"op": "edit", "content_raw": "as edited"})
        page.sees("as edited", ".unread-topic")
        hub.http.patch(path, {"op": "delete", "actor": "ada"})
        page.sees("[deleted]", ".unread-topic")
        page.misses("as edited")


def test_reader_sees_no_part_that_the_token_may_not_read(hub):
    _, topic = hub.channel_with_topic("general")
    body = {"name": "reader", "scopes": ["hub:read"]}
    reader = hub.made(hub.http.post("/api/v1/tokens", body))["token"]["id"]
    hub.made(hub.http.post("/api/v1/jobs/runs", RUN))
    with ui_page(hub, signed_in=False) as page:
        page.sign_in(reader)
        page.go("#/")
        page.is_live()
        hub.send(topic, "for everybody")
        page.sees("for everybody", HOME)
        page.lacks("section[aria-label='Failed jobs']")
        assert page.tab.problems == []


def test_alerts_are_off_until_the_person_asks_for_them(hub):
    hub.channel_with_topic("general")
    with ui_page(hub) as page:
        page.tab.call("Page.addScriptToEvaluateOnNewDocument", source=RECORD_ALERTS)
        page.open("#/")
        page.is_live()
        ask(hub, "first question")
        page.sees("first question", f"{HOME} .ask")
        assert page.tab.evaluate("window.alerts") == []
        page.click("fieldset label", "desktop notification")
        page.click("fieldset label", "sound")
        page.has("fieldset label:last-child input:checked")
        page.tab.evaluate("void (window.alerts.length = 0)")
        ask(hub, "second question")
        until(lambda: len(page.tab.evaluate("window.alerts")) >= 3, 20, "the person is alerted")
        shown = page.tab.evaluate("window.alerts")
        assert shown == ["Question of deployer: second question", "tone", "tone"]
        page.tab.evaluate("void (window.alerts.length = 0)")
        page.open("#/")
        page.sees("second question", f"{HOME} .ask")
        assert page.tab.evaluate("window.alerts") == []
