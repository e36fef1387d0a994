"""Plugins of a served appliance: gate E, starts, kills, the command line and the doctor."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.sdk.client import Client
from appliance.workspace.datadir import DataDir
from appliance.workspace.schema import create_workspace
from tests.support.commands import agentlip, start_that_ends, succeed
from tests.support.plugins import alive, caught_up, children_of, enriched, plugin, settings_of
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("enterable")]

BUSY_POST_SECONDS_MAX = 1.5  # less than the plugin is waited for


def test_gate_e_faulty_plugin_does_not_delay_others(tmp_path):
    """Each of its faults costs one message; posting is as quick as ever; the hub serves on."""
    text = settings_of(tmp_path, ("marks", "linkifier", "marks"), timeout_seconds=2.0)
    constants = {"appliance.hub.plugins.plugin.FAILURES_MAX": 100}
    with serve(tmp_path, settings=text, constants=constants) as hub:
        _, topic = hub.channel_with_topic("a")
        bad = [hub.send(topic, f"!{how}") for how in ("hang", "spin", "die", "raise", "huge")]
        good, slowest = [], 0.0
        for number in range(60):
            began = time.monotonic()
            good.append(hub.send(topic, f"!word{number}")["message"]["id"])
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < BUSY_POST_SECONDS_MAX
        caught_up(hub)
        assert set(enriched(hub)) == set(good)
        status = plugin(hub)
        assert (status["done"], status["failed"], status["state"]) == (60, len(bad), "running")
        metrics = hub.http.get("/metrics").raw.decode()
        for outcome, count in (("timeout", 2), ("crashed", 1), ("error", 2), ("done", 60)):
            line = 'agentlip_plugins_messages_total{outcome="%s",plugin="marks"} %d.0'
            assert line % (outcome, count) in metrics, metrics
        assert hub.http.get("/-/ready").status == 200
    assert hub.log_text.count('"plugin failed"') == len(bad)
    assert "!raise" not in hub.log_text  # no text of a message, not even inside an error
    assert '"error_type":"ValueError"' in hub.log_text


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """With the plugin `marks`, and secrets in its environment."""
    workspace = tmp_path_factory.mktemp("plugins")
    text = settings_of(workspace, ("marks", "linkifier", "marks"))
    secrets = {"AWS_SECRET_ACCESS_KEY": "planted", "SOME_PASSPHRASE": "planted"}
    with serve(workspace, settings=text, HARMLESS="passed on", **secrets) as hub:
        yield hub


def test_no_child_has_the_secrets_of_the_environment(hub):
    _, topic = hub.channel_with_topic("secrets")
    hub.send(topic, "!good")
    caught_up(hub)
    server = Path(f"/proc/{hub.process.pid}")
    children = (server / f"task/{hub.process.pid}/children").read_text().split()
    seen = [Path(f"/proc/{pid}/environ").read_bytes() for pid in children]
    assert b"planted" in (server / "environ").read_bytes()
    assert len(seen) >= 2, "the writer and the plugin"
    assert not any(b"planted" in text for text in seen)
    assert any(b"HARMLESS=passed on" in text for text in seen)


def test_a_breaker_stops_a_plugin_and_its_cursor_waits(tmp_path):
    text = settings_of(tmp_path, ("marks", "linkifier", "marks"))
    pauses = {"appliance.hub.plugins.plugin.PAUSES": {"initial_seconds": 8.0}}
    with serve(tmp_path, settings=text, constants=pauses) as hub:
        _, topic = hub.channel_with_topic("a")
        for _ in range(5):
            hub.send(topic, "!die")
        until(lambda: plugin(hub)["breaker"] == "open", 20, "a pause")
        good = hub.send(topic, "!good")["message"]["id"]
        status = plugin(hub)
        assert (status["state"], status["lag"] > 0) == ("paused", True)
        assert "ended" in status["reason"]
        done = agentlip("doctor", "--json", cwd=tmp_path)
        assert "the plugin keeps failing and pauses" in done.out
        caught_up(hub)
        assert list(enriched(hub)) == [good]
        status = plugin(hub)
        assert (status["breaker"], status["reason"]) == ("closed", "")


def test_a_stop_ends_the_plugins_and_keeps_the_cursor(tmp_path):
    text = settings_of(tmp_path, ("marks", "linkifier", "marks"), timeout_seconds=60.0)
    with serve(tmp_path, settings=text) as hub:
        _, topic = hub.channel_with_topic("a")
        hub.send(topic, "!one")
        caught_up(hub)
        head = hub.head
        hub.send(topic, "!wait")
        until(lambda: children_of(hub.pid), 10, "a process")
        workers = children_of(hub.pid)
        began = time.monotonic()
        assert hub.stop() == 0
        assert time.monotonic() - began < 8
        until(lambda: not any(map(alive, workers)), 10, "they end")
        [(cursor,)] = hub.rows("SELECT cursor FROM x_plugin_cursors")
        assert cursor == head


UNFIT = {
    'module = "plugins/none.py"': "there is no file plugins/none.py",
    'module = "../outside.py"': "is outside the workspace",
    'module = "plugins/out.py"': "is outside the workspace",
    'module = "plugins/broken.py"': "can't be loaded (SyntaxError",
    'module = "plugins/other.py"': "can't be loaded (LookupError",
}


def unfit_modules(workspace):
    (workspace / "plugins").mkdir(parents=True)
    (workspace.parent / "outside.py").write_text("def enrich(message, config): return []")
    (workspace / "plugins" / "out.py").symlink_to(workspace.parent / "outside.py")
    (workspace / "plugins" / "broken.py").write_text("def enrich(:")
    (workspace / "plugins" / "other.py").write_text("def extract(message, config): return []")


def test_missing_or_broken_plugin_is_a_warning(tmp_path):
    workspace = tmp_path / "workspace"
    unfit_modules(workspace)
    bad = {f"bad{number}": own for number, own in enumerate(UNFIT)}
    plugins = [(name, "linkifier", own) for name, own in bad.items()]
    text = settings_of(workspace, *plugins, ("marks", "linkifier", "marks"))
    with serve(workspace, settings=text) as hub:
        _, topic = hub.channel_with_topic("a")
        message = hub.send(topic, "!word")["message"]["id"]
        caught_up(hub)
        assert list(enriched(hub)) == [message]
        for name, own in bad.items():
            until(lambda: UNFIT[own] in plugin(hub, name)["reason"], 10, name)  # noqa: B023
            assert plugin(hub, name)["state"] in ("broken", "paused")
            assert UNFIT[own] in hub.log_text


@pytest.mark.parametrize("own", [*UNFIT][2:4])
def test_required_plugin_that_cannot_run_stops_the_start(tmp_path, own):
    workspace = tmp_path / "workspace"
    unfit_modules(workspace)
    required = settings_of(workspace, ("bad", "linkifier", own, "required = true"))
    done = start_once(workspace, required)
    assert done.code == 1
    last = [line for line in done.err.splitlines() if line.startswith(("Error", "Hint"))]
    assert last[0].startswith("Error: the required plugin bad can't run: ")
    assert UNFIT[own] in last[0]
    assert last[1].startswith("Hint: ")
    assert "Traceback" not in done.err


def start_once(workspace, text):
    """An appliance that is expected not to start."""
    datadir = DataDir(workspace)
    create_workspace(datadir, clock=SystemClock(), log=Log(sys.stderr.buffer, level="error"))
    datadir.settings_file.write_text(text)
    return start_that_ends(workspace)


def test_re_enrich_gives_plugins_the_past(tmp_path):
    """New plugins begin at the log's end; `re-enrich` gives them the past, also over a restart."""
    with serve(tmp_path, settings="[plugins]\nurls = false\n") as hub:
        _, topic = hub.channel_with_topic("a")
        old = [hub.send(topic, f"!m{n} https://example.com/{n}")["message"]["id"] for n in range(8)]
        hub.http.patch(f"/api/v1/messages/{old[0]}", {"op": "delete", "actor": "me"})
        before = hub.head
    text = settings_of(
        tmp_path, ("marks", "linkifier", "marks"), ("urls", "extractor", 'builtin = "urls"'),
        timeout_seconds=60.0,
    )  # fmt: skip
    with serve(tmp_path, settings=text) as hub:
        caught_up(hub)
        assert hub.head == before  # nothing was done by itself

        hub.http.patch(f"/api/v1/messages/{old[7]}", {"op": "edit", "content_raw": "!wait"})
        done = succeed("re-enrich", "--since", "0", "--plugin", "marks", "--json", cwd=tmp_path)
        assert [row["plugin"] for row in done.json["taken"]] == ["marks"]
        until(lambda: plugin(hub)["isolation"] is not None, 10, "it began")
        hub.kill()
        (tmp_path / "plugins" / "gate").touch()
        hub.start()
        caught_up(hub)
        assert set(enriched(hub)) == set(old[1:])
        assert all(len(events) == 1 for events in enriched(hub).values())

        done = agentlip("re-enrich", "--since", "0", cwd=tmp_path)
        assert [line.partition(":")[0] for line in done.out.splitlines()] == ["marks", "urls"]
        caught_up(hub)
        caught_up(hub, "urls")
        assert all(len(events) == 1 for events in enriched(hub).values())
        assert len(hub.rows("SELECT id FROM topic_attachments")) == 6
        assert agentlip("re-enrich", "--since", "0", "--plugin", "no", cwd=tmp_path).code == 1


def test_enrichments_need_read_access(hub):
    channel, topic = hub.channel_with_topic("access")
    other, _ = hub.channel_with_topic("other")
    message = hub.send(topic, "a !word")["message"]["id"]
    caught_up(hub)
    path = f"/api/v1/messages/{message}/enrichments"
    body = hub.http.get(path).body
    assert (body["message_id"], body["version"], body["has_more"]) == (message, 1, False)
    [status] = body["enrichments"]
    assert status.pop("id").startswith("enr_")
    assert status.pop("created_at")
    assert status == {
        "kind": "mark", "span": {"start": 2, "end": 7}, "data": {"word": "!word"},
        "plugin": "marks",
    }  # fmt: skip
    assert hub.http.get("/api/v1/messages/msg_none/enrichments").status == 404
    with Client(workspace=hub.workspace) as client:
        [expected] = client.list_enrichments(message)
        assert (expected.plugin, expected.span) == ("marks", {"start": 2, "end": 7})
    done = agentlip("plugin", "found", "--message-id", message, cwd=hub.workspace)
    assert "!word" in done.out
    done = agentlip("plugin", "list", "--json", cwd=hub.workspace)
    assert done.json[0]["name"] == "marks"

    for scopes, status in (([f"hub:read@{channel}"], 200), ([f"hub:read@{other}"], 403)):
        made = hub.http.post("/api/v1/tokens", {"name": status and scopes[0], "scopes": scopes})
        client = hub.connect(made.body["secret"])
        assert client.get(path).status == status
        assert client.get("/api/v1/plugins").status == 403
        assert client.post("/api/v1/plugins/re-enrich", {"since": 0}).status == 403
        client.close()
    stranger = hub.connect(None)
    assert stranger.get("/api/v1/plugins").status == 401
    stranger.close()


def test_signal_to_a_plugin_does_not_stop_the_appliance(hub):
    _, topic = hub.channel_with_topic("signals")
    hub.send(topic, "!one")
    caught_up(hub)
    [worker] = children_of(hub.pid)
    subprocess.run(["kill", f"-{int(signal.SIGKILL)}", str(worker)], check=True)
    until(lambda: not alive(worker), 10, "it ends")
    message = hub.send(topic, "!two")["message"]["id"]
    third = hub.send(topic, "!three")["message"]["id"]
    caught_up(hub)
    assert third in enriched(hub)
    assert message in enriched(hub)
