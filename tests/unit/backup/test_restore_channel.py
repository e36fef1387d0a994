"""One channel of a backup becomes a workspace in which the doctor finds nothing."""

from pathlib import Path

import pytest

from tests.support.commands import agentlip
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> ServedHub:
    """A stopped appliance with two channels that were written alternately, and a backup."""
    hub = ServedHub(tmp_path_factory.mktemp("hub"), "--no-limits")
    hub.start()
    _, wanted = hub.channel_with_topic("wanted")
    _, other = hub.channel_with_topic("other")
    for number in range(4):
        message = hub.send(wanted, f"wanted {number}")["message"]["id"]
        hub.send(other, f"other {number}")
    edit = {"op": "edit", "content_raw": "new"}
    assert hub.http.patch(f"/api/v1/messages/{message}", edit).status == 200
    body = {"kind": "url", "value_json": {"url": "https://example.org"}}
    hub.http.post(f"/api/v1/topics/{wanted}/attachments", body)
    hub.http.post(f"/api/v1/topics/{other}/attachments", body)
    hub.http.patch(f"/api/v1/topics/{wanted}", {"title": "renamed"})
    assert agentlip("backup", "create", cwd=hub.workspace).code == 0
    hub.stop()
    return hub


def restored(hub: ServedHub, into: Path, *flags: str, channel: str = "wanted"):
    arguments = ("--latest", "--channel", channel, "--into", str(into), "--json", *flags)
    return agentlip("backup", "restore", *arguments, cwd=hub.workspace)


def test_channel_is_served_from_its_own_workspace(hub: ServedHub, tmp_path: Path) -> None:
    done = restored(hub, tmp_path / "one", "--yes")
    assert done.code == 0, done
    assert done.json["rows"] | {"channels": 1, "topics": 1, "messages": 4} == done.json["rows"]
    checked = agentlip("doctor", "--all", "--json", cwd=tmp_path / "one")
    assert checked.code == 0, checked.out
    assert all(not each["findings"] for each in checked.json["checks"]), checked.out
    copy = ServedHub(tmp_path / "one", "--no-limits")
    with copy.running():
        assert [row["name"] for row in copy.http.get("/api/v1/channels").body["channels"]] == [
            "wanted"
        ]
        events = copy.events()
        assert [event["event_id"] for event in events] == list(range(1, len(events) + 1))
        assert len(events) == done.json["rows"]["events"]
        assert not any("other" in str(event) for event in events)
        assert copy.http.get("/health").body["db_id"] == done.json["db_id"]
        assert copy.rows("SELECT count(*) FROM topic_attachments") == [(1,)]
    assert copy.token != hub.token
    assert agentlip("doctor", "--all", cwd=tmp_path / "one").code == 0


def test_plan_writes_nothing(hub: ServedHub, tmp_path: Path) -> None:
    planned = restored(hub, tmp_path / "one", "--plan")
    assert planned.json["made"] is False
    assert planned.json["rows"]["messages"] == 4
    assert restored(hub, tmp_path / "one").code == 1
    assert not (tmp_path / "one").exists()


def test_unknown_channel_is_refused(hub: ServedHub, tmp_path: Path) -> None:
    refused = restored(hub, tmp_path / "one", "--yes", channel="nothing")
    assert "no channel" in refused.err
    assert not list((tmp_path / "one").rglob("*.sqlite3"))
