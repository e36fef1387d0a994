"""Maintenance mode of a served appliance: writes get 503 whatever they enter by, reads go on."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from ops.ui_week import set_clock, shift_clock
from tests.support.commands import agentlip, agentlipd
from tests.support.servedhub import ServedHub
from tests.support.socketclient import Refused, SocketClient

pytestmark = pytest.mark.slow
PATH = "/api/v1/maintenance"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with (made := ServedHub(tmp_path_factory.mktemp("hub"))).running():
        yield made


@pytest.fixture(autouse=True)
def open_again(hub):
    yield
    hub.http("DELETE", PATH)


def begin(hub, **time):
    until = datetime.now(UTC) + timedelta(**(time or {"hours": 1}))
    return hub.http.post(PATH, {"until": until.isoformat(), "reason": "new disk"})


def test_writes_over_http_wait_and_reads_go_on(hub):
    channel = hub.channel("before")
    assert begin(hub).body["on"] is True
    refused = hub.http.post("/api/v1/channels", {"name": "x"})
    assert (refused.status, refused.body["code"]) == (503, "MAINTENANCE")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.body["details"]["until"]
    assert hub.http.get("/api/v1/channels").status == 200
    assert hub.http.get(f"/api/v1/channels/{channel}/topics").status == 200
    assert hub.http.get("/metrics").status == 200
    assert hub.http.get("/-/ready").status == 200
    for path in ("/api/v1/sends", "/v1/send", "/v1/enqueue", "/api/v1/asks", "/api/v1/jobs/a/runs"):
        assert hub.http.post(path, {}).status in (404, 503), path
    assert hub.http("DELETE", PATH).body == {"on": False, "until": None, "reason": ""}
    assert hub.http.post("/api/v1/channels", {"name": "x"}).status == 201


def test_administration_goes_on(hub):
    begin(hub)
    paths = ("backups", "doctor/repair", "invitations", "jobs/all/pause", "jobs/all/resume",
             "maintenance", "notify/test", "sessions", "tokens")  # fmt: skip
    codes = [hub.http.post(f"/api/v1/{path}", {}).body.get("code") for path in paths]
    assert "MAINTENANCE" not in codes
    token = hub.http.post("/api/v1/tokens", {"name": "new", "scopes": ["hub:read"]})
    assert token.status == 201


def test_a_request_on_an_open_socket_is_refused(hub):
    _, topic = hub.channel_with_topic("sockets")
    socket = SocketClient(hub.port, hub.token)
    socket.hello()
    message = {"topic_id": topic, "sender": "a", "content_raw": "x"}
    begin(hub)
    answer = socket.request("message.create", message)
    assert (answer["status"], answer["body"]["code"]) == (503, "MAINTENANCE")
    hub.http("DELETE", PATH)
    answer = socket.request("message.create", message)
    assert answer["status"] == 201


def test_sockets_of_consumers_are_closed_and_refused(hub):
    path, query = "/v1/subscribe", "?stream=agents/a/inbox"
    consumer = SocketClient(hub.port, hub.token, path=path, query=query)
    begin(hub)
    assert consumer.close_code() == 1001
    with pytest.raises(Refused) as refused:
        SocketClient(hub.port, hub.token, path=path, query=query)
    assert refused.value.status == 503
    hub.http("DELETE", PATH)
    SocketClient(hub.port, hub.token, path=path, query=query)


def test_maintenance_survives_restart_and_ends_at_its_time(tmp_path):
    made = ServedHub(tmp_path)
    with made.running():
        assert begin(made).status == 200
    with made.running():
        assert made.http.post("/api/v1/channels", {"name": "x"}).status == 503
        record = made.datadir.dir / "maintenance.json"
        record.write_text(json.dumps({"until_ms": 1, "reason": ""}))
    with made.running():
        assert made.http.post("/api/v1/channels", {"name": "x"}).status == 201


def test_length_is_another_way_to_name_the_end_and_status_shows_it(hub):
    begun = agentlip("maintenance", "on", "--for", "30m", "--json", cwd=hub.workspace).json
    left = datetime.fromisoformat(begun["until"]) - datetime.now(UTC)
    assert timedelta(minutes=20) < left <= timedelta(minutes=30)
    shown = agentlipd("status", cwd=hub.workspace).out
    assert f"Maintenance: writes are refused until {begun['until']}" in shown
    assert " writes-refused " in agentlip("status", cwd=hub.workspace).out
    assert agentlip("status", "--json", cwd=hub.workspace).json["maintenance_until"]
    hub.http("DELETE", PATH)
    assert "refused" not in agentlip("status", cwd=hub.workspace).out


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%MZ"])
def test_end_may_be_a_time_without_seconds(hub, form):
    end = (datetime.now(UTC) + timedelta(hours=2)).strftime(form)
    begun = agentlip("maintenance", "on", "--until", end, "--json", cwd=hub.workspace).json
    assert begun["until"][:16] == end.replace(" ", "T")[:16]


def test_length_counts_by_the_appliances_clock(hub, tmp_path):
    set_clock(shift_clock(tmp_path), hours_ago=-2)
    begun = agentlip(
        "maintenance", "on", "--for", "30m", "--json", cwd=hub.workspace, PYTHONPATH=str(tmp_path)
    ).json
    left = datetime.fromisoformat(begun["until"]) - datetime.now(UTC)
    assert timedelta(minutes=20) < left <= timedelta(minutes=30)


@pytest.mark.parametrize(
    "end", [{}, {"seconds": 60, "until": "2030-01-01T00:00:00Z"}, {"seconds": 700_000}]
)
def test_wrong_end_is_refused(hub, end):
    assert hub.http.post(PATH, end).body["code"] == "BAD_END_OF_MAINTENANCE"


@pytest.mark.parametrize(
    "flags", [(), ("--for", "soon"), ("--for", "30m", "--until", "2030-01-01"), ("--for", "9d"),
     ("--until", "18:00")],
)  # fmt: skip
def test_wrong_length_is_refused_with_a_hint_that_works(hub, flags):
    refused = agentlip("maintenance", "on", *flags, cwd=hub.workspace)
    assert refused.code == 1
    assert "Hint: agentlip maintenance on --for 30m" in refused.err
    assert hub.http.get(PATH).body["on"] is False
