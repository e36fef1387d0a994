"""What the web UI shows when something is missing, off, read-only or ended."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.support.commands import agentlip, succeed
from tests.support.http_server import http_server
from tests.support.servedhub import ServedHub, serve
from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("ui")) as hub:
        hub.send(hub.channel_with_topic("general")[1], "for readers")
        yield hub


def test_reader_without_a_session_may_not_write(hub):
    with ui_page(hub, signed_in=False) as page:
        page.open()
        page.click(".sidebar a", "general")
        page.click(".cards a")
        page.sees("for readers", ".list")
        page.sees("Sign in", ".compose")
        assert page.count(".compose textarea") == 0
        assert page.count('.actions button[aria-label^="Edit"]') == 0


def test_one_time_link_leaves_the_address_before_it_is_used(hub):
    with ui_page(hub, signed_in=False) as page:
        page.open("#invite=not-a-real-one")
        page.sees("Sign in", "h1")
        assert "invite" not in page.tab.evaluate("location.href")
        assert not any("not-a-real-one" in each.partition("#")[0] for each in page.tab.requests)
        stored = page.tab.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
        assert "not-a-real-one" not in stored


def test_read_only_appliance_is_read_and_explains_its_refusals(tmp_path):
    with serve(tmp_path) as hub, ui_page(hub) as page:
        topic = hub.channel_with_topic("general")
        hub.send(topic[1], "written before")
        page.open()
        page.topic(*topic)
        page.is_live()
        port = hub.port
        hub.stop()
        hub.start("--port", str(port), "--read-only")
        page.open()
        page.topic(*topic)
        page.sees("written before", ".list")
        page.sees("Read-only", ".banner")
        page.fill(".compose textarea", "too late")
        page.press("Enter")
        page.sees("nothing was written", ".notice")
        hub.stop()
        hub.start("--port", str(port))
        page.is_live()
        page.misses("Read-only")
        page.press("Enter")
        page.sees("too late", ".list")


def test_suspended_store_is_explained_while_other_views_work(tmp_path):
    hub = ServedHub(tmp_path, "--no-limits")
    hub.datadir.suspect_file("outbox").write_text("damaged\n")
    with hub.running(), ui_page(hub) as page:
        page.go("#/operate?view=sends")
        page.sees("The store of the outbox is suspended", "main")
        page.sees("agentlip doctor", "main .command")
        page.go("#/operate?view=findings")
        page.sees("outbox", ".findings")
        page.go("#/operate?view=queues")
        page.sees("No streams yet", "main")


@pytest.mark.parametrize(
    ("zone", "locale", "time", "date"),
    [
        ("Asia/Kolkata", "de-DE", "%H:%M", "%d.%m.%Y"),
        ("America/Los_Angeles", "en-US", "%I:%M %p", "%b %-d, %Y"),
    ],
)
def test_times_are_in_the_zone_and_locale_of_the_browser(hub, zone, locale, time, date):
    channel_id, topic_id = hub.channel_with_topic(zone.replace("/", "-"))
    message = hub.send(topic_id, "dated")["message"]
    at = datetime.fromisoformat(message["created_at"]).astimezone(ZoneInfo(zone))
    with ui_page(hub) as page:
        page.tab.call("Emulation.setTimezoneOverride", timezoneId=zone)
        page.tab.call("Emulation.setLocaleOverride", locale=locale)
        page.open()
        page.topic(channel_id, topic_id)
        page.sees("dated", ".list")
        assert page.text(".who time").replace("\u202f", " ") == at.strftime(time)
        title = page.tab.evaluate("document.querySelector('.who time').title")
        assert title.startswith(at.strftime(date))


def test_revoked_token_ends_the_page(tmp_path):
    with serve(tmp_path) as hub, ui_page(hub, signed_in=False) as page:
        made = agentlip("token", "create", "--name", "guest", "--scope", "hub:read", "--json",
                        cwd=tmp_path).json  # fmt: skip
        page.sign_in(made["token"]["id"])
        page.is_live()
        agentlip("token", "revoke", made["token"]["id"], cwd=tmp_path)
        page.sees("Signed out", ".banner")
        page.has(".dot.signed-out")
        page.go("#/operate?view=settings")
        page.sees("Sign in", "main")


def test_server_on_another_port_can_not_use_the_session(hub):
    """A browser sends it the cookie, but never the secret that the page keeps."""
    html = (200, {"Content-Type": "text/html"}, b"<h1>another account</h1>")
    with http_server(lambda _request: html) as other, ui_page(hub) as page:
        page.is_live()
        page.tab.open(f"http://127.0.0.1:{other.port}/")
        taken = other.requests[0].headers["cookie"]
        assert "agentlip_session" in taken
        assert page.tab.evaluate("JSON.stringify({...localStorage, ...sessionStorage})") == "{}"
        headers = {"Cookie": taken, "Origin": hub.url, "X-Agentlip-Request": "ui"}
        made = hub.connect(None).post(
            "/api/v1/tokens", {"name": "taken", "scopes": ["admin"]}, headers=headers
        )
        assert made.status == 401
        page.open()
        page.is_live()
        page.misses("Sign in", ".person")
        page.tab.evaluate("localStorage.removeItem('agentlip.ui.page')")
        page.open()
        page.sees("Sign in", ".person")


def test_sign_out_forgets_the_secret_of_the_page(hub):
    with ui_page(hub) as page:
        page.go("#/sign-in")
        page.click("main button", "Sign out")
        page.sees("Sign in", "h1")
        secret = "localStorage.getItem('agentlip.ui.page')"
        until(lambda: page.tab.evaluate(secret) == '""', 10, "the secret is forgotten")


def test_restore_replaces_what_open_pages_show(tmp_path):
    with serve(tmp_path) as hub:
        channel_id, topic_id = topic = hub.channel_with_topic("general")
        hub.send(topic_id, "in the backup")
        with ui_page(hub) as page, ui_page(hub, signed_in=False) as reader:
            made = agentlip("backup", "create", "--json", cwd=tmp_path).json
            hub.topic(channel_id, "lost topic")
            hub.send(topic_id, "lost")
            for each in (page, reader):
                each.open()
                each.topic(*topic)
                each.sees("lost", ".list")
                each.sees("lost topic", ".sidebar")
            port = hub.port
            hub.stop()
            succeed("backup", "restore", made["name"], "--yes", cwd=tmp_path)
            hub.start("--port", str(port))
            hub.send(topic_id, "after the restore")
            # A restore ends all sessions. Reading needs none here.
            page.sees("restored from a backup")
            page.sees("Sign in", "h1")
            assert "lost" not in page.text()
            page.fill("input[type=password]", hub.token)
            page.click("main .primary", "Sign in")
            for each in (page, reader):
                each.sees("after the restore", ".list")
                each.misses("lost")
                assert each.text(".list").count("in the backup") == 1
            hub.send(topic_id, "live again")
            for each in (page, reader):
                each.sees("live again", ".list")


# Events come as if the appliance's clock had jumped.
LATER_EVENTS = """
void (() => {
  const real = JSON.parse;
  JSON.parse = (text) => {
    const value = real(text);
    if (value?.type === "event") {
      value.ts = new Date(Date.parse(value.ts) + 2 * 3600 * 1000).toISOString();
    }
    return value;
  };
})()
"""


def test_clock_that_jumped_is_pointed_out(hub):
    with ui_page(hub) as page:
        page.open()
        page.is_live()
        page.tab.evaluate(LATER_EVENTS)
        hub.channel("later")
        page.sees("The clock jumped", ".banner")
        page.click(".banner button", "Dismiss")
        page.misses("The clock jumped")
