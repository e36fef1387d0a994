"""What the web UI shows when something is missing, off, read-only or ended."""

import pytest

from tests.support.commands import agentlip
from tests.support.servedhub import serve
from tests.support.uipage import ui_page

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


def test_hub_that_is_off_is_explained(tmp_path):
    with serve(tmp_path, settings="[roles]\nhub = false\n") as hub, ui_page(hub) as page:
        page.open()
        page.sees("The hub is switched off")
        assert "ROLE_OFF" in page.text("main")


def test_appliance_that_is_gone_and_back(tmp_path):
    with serve(tmp_path) as hub, ui_page(hub) as page:
        page.open()
        page.is_live()
        port = hub.port
        hub.kill()
        page.has(".dot.offline")
        page.sees("tries again by itself", ".banner")
        hub.start("--port", str(port))
        page.click(".banner button", "Try now")
        page.is_live()
        assert page.count(".banner") == 0


def test_revoked_token_ends_the_page(tmp_path):
    with serve(tmp_path) as hub, ui_page(hub, signed_in=False) as page:
        made = agentlip("token", "create", "--name", "guest", "--scope", "hub:read", "--json",
                        cwd=tmp_path).json  # fmt: skip
        page.sign_in(made["token"]["id"])
        page.is_live()
        agentlip("token", "revoke", made["token"]["id"], cwd=tmp_path)
        page.sees("Signed out", ".banner")
        page.has(".dot.signed-out")


def test_restored_workspace_is_read_again(hub):
    with ui_page(hub) as page:
        page.open()
        page.click(".sidebar a", "general")
        page.is_live()
        page.tab.evaluate(
            "import('/ui/store.js').then(({ state }) => { window.state = state;"
            " state.channels = new Map(); })"
        )
        # What a restore does to an open page: the hello of its next socket names another epoch.
        port = hub.port
        with_epoch = "window.WebSocket.prototype.send"
        page.tab.evaluate(
            f"(() => {{ const real = {with_epoch}; {with_epoch} = function (text) {{"
            " const hello = JSON.parse(text);"
            " real.call(this, JSON.stringify({ ...hello, epoch: hello.after_event_id ?"
            " 'before-the-restore' : hello.epoch }));"
            f" {with_epoch} = real; }}; }})()"
        )
        hub.kill()
        hub.start("--port", str(port))
        page.sees("restored from a backup")
        page.is_live()
        page.sees("general", ".sidebar")


def test_clock_that_jumped_is_pointed_out(hub):
    with ui_page(hub) as page:
        page.open()
        page.is_live()
        page.tab.evaluate(
            "void (() => { const real = Date.now; Date.now = () => real() + 2 * 3600 * 1000; })()"
        )
        hub.channel("later")
        page.sees("The clock jumped", ".banner")
        page.click(".banner button", "Dismiss")
        page.misses("The clock jumped")


def test_link_of_the_command_line_signs_one_browser_in(tmp_path):
    with serve(tmp_path) as hub:
        link = agentlip("ui", "--print", "--json", cwd=tmp_path).json["link"]
        assert link.startswith(f"{hub.url}/ui/#invite=")
        fragment = link.partition("/ui/")[2]
        with ui_page(hub, signed_in=False) as page:
            page.open(fragment)
            page.sees("server")
            page.is_live()
            assert "invite" not in page.tab.evaluate("location.href")
        with ui_page(hub, signed_in=False) as page:
            page.open(fragment)
            page.sees("was used already")
            page.sees("A link works once")
