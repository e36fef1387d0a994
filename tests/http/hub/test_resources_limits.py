"""Gate J over a real socket: secrets, bind, rates; and no secrets or texts in the log."""

import json
import stat
import threading
import time
from datetime import datetime

import pytest

from tests.support.servedhub import ServedHub, serve
from tests.support.socketclient import SocketClient

pytestmark = pytest.mark.slow


def message(ids, content, sender="s"):
    return {"topic_id": ids[1], "sender": sender, "content_raw": content}


# -- secrets --------------------------------------------------------------------------------


def test_token_is_long_and_private(hub):
    assert len(bytes.fromhex(hub.token)) * 8 >= 128
    for file in (hub.datadir.token_file, hub.datadir.server_file, hub.datadir.database("hub")):
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
    assert hub.datadir.read_server().auth_token == hub.token


def test_start_restricts_the_modes_of_files(tmp_path):
    hub = ServedHub(tmp_path)
    hub.start()
    hub.stop()
    hub.datadir.token_file.chmod(0o644)
    hub.datadir.server_file.write_text("{}")
    hub.datadir.server_file.chmod(0o644)
    with hub.running():
        for file in (hub.datadir.token_file, hub.datadir.server_file):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


SECRET = "the planted content of a message"


def test_neither_tokens_nor_content_reach_the_log_or_an_error(tmp_path):
    settings = '[log]\nlevel = "debug"\naccess = "all"\n'
    with serve(tmp_path, settings=settings) as hub:
        topic_id = hub.channel_with_topic("secret")[1]
        guess = "deadbeef" * 8
        answers = [
            hub.http.post("/api/v1/messages", message((0, topic_id), SECRET)),
            hub.http.post("/api/v1/messages", {"topic_id": 1, "content_raw": SECRET}),
            hub.http.post("/api/v1/messages", message((0, "nowhere"), SECRET)),
            hub.http.post("/api/v1/messages", message((0, topic_id), SECRET * 9999)),
            hub.http.post("/api/v1/messages", raw=f'{{"content_raw": "{SECRET}'.encode()),
            hub.http.get(f"/api/v1/channels?token={hub.token}"),
            hub.http.get(f"/nowhere/{hub.token}"),
            hub.connect(token=guess).post("/api/v1/messages", message((0, topic_id), SECRET)),
            hub.connect(token=None).post("/api/v1/messages", message((0, topic_id), SECRET)),
            hub.http("POST", "/api/v1/channels", {"name": "x"}, headers={"Host": hub.token}),
        ]
        with SocketClient(hub.port, None, query=f"?token={hub.token}") as client:
            client.hello(0)
            for data in (message((0, topic_id), SECRET), {"content_raw": SECRET, "topic_id": 1}):
                client.send({"type": "request", "id": 1, "op": "message.create", "data": data})
                answer = client.until(lambda frame: frame["type"] == "response")[-1]
            assert SECRET not in json.dumps(answer)
            client.send({"type": SECRET, "token": hub.token})
        with SocketClient(hub.port, None, query=f"?token={guess}") as client:
            client.close_code()
        assert [answer.status for answer in answers][:2] == [201, 400]
        for answer in answers[1:]:
            assert answer.status >= 400
            assert hub.token not in answer.raw.decode()
            assert guess not in answer.raw.decode()
            assert SECRET not in answer.raw.decode()
            assert str(tmp_path) not in answer.raw.decode()
        token = hub.token
    log_text = hub.log_text
    assert "/api/v1/messages" in log_text, "access lines were written"
    for hidden in (token, guess, SECRET):
        assert hidden not in log_text
        assert hidden[: len(hidden) // 2] not in log_text
    for line in log_text.splitlines():
        json.loads(line)


# -- bind -----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_bind_beyond_loopback_is_refused(tmp_path, host):
    hub = ServedHub(tmp_path, "--host", host)
    with pytest.raises(AssertionError):
        hub.start()
    assert hub.process.wait(10) == 1
    assert "--unsafe-network" in hub.log_text
    assert not hub.datadir.server_file.exists()


def test_unsafe_network_bind_needs_a_token_for_everything(tmp_path):
    with serve(tmp_path, "--host", "0.0.0.0", "--unsafe-network") as hub:
        anybody = hub.connect(token=None)
        assert anybody.get("/health").status == 200
        for path in ("/api/v1/channels", "/api/v1/events", "/api/v1/events/stream", "/metrics"):
            assert anybody.get(path).status == 401, path
        assert hub.http.get("/api/v1/channels").status == 200


# -- rates ----------------------------------------------------------------------------------


def in_one_window(hub, count, limit):
    """`count` requests on one connection within a second of the clock; their answers."""
    while True:
        client = hub.connect()
        started = int(time.time())
        answers = [client.get("/api/v1/channels") for _ in range(count)]
        client.close()
        if int(time.time()) == started:
            return answers


def test_connection_is_limited_to_a_hundred_requests_a_second(tmp_path):
    with serve(tmp_path, limits=True) as hub:
        answers = in_one_window(hub, 150, 100)
        assert [answer.status for answer in answers] == [200] * 100 + [429] * 50
        remaining = [int(answer.headers["x-ratelimit-remaining"]) for answer in answers]
        assert remaining == [*range(99, -1, -1), *[0] * 50]
        assert {answer.headers["x-ratelimit-limit"] for answer in answers} == {"100"}
        reset = datetime.fromisoformat(answers[0].headers["x-ratelimit-reset"])
        assert 0 < reset.timestamp() - time.time() + 1 <= 2
        refused = answers[-1]
        assert refused.body["code"] == "RATE_LIMITED"
        assert refused.body["details"]["limit"] == 100
        assert refused.body["details"]["window"] == "1s"
        assert 0 < refused.body["details"]["retry_after"] <= 1
        assert refused.headers["retry-after"] == "1"


def test_connections_share_the_total_rate_limit(tmp_path):
    settings = "[limits]\nper_connection = 60\nglobal = 100\n"
    with serve(tmp_path, settings=settings, limits=True) as hub:
        statuses = []

        def ask():
            client = hub.connect()
            for _ in range(40):
                statuses.append((int(time.time()), client.get("/api/v1/channels").status))
            client.close()

        started = int(time.time())
        threads = [threading.Thread(target=ask) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = int(time.time()) - started + 1
        allowed = sum(status == 200 for _, status in statuses)
        assert {status for _, status in statuses} == {200, 429}
        assert 100 <= allowed <= 100 * seconds
        assert hub.connect().get("/health").status == 200, "a probe is not limited"
