"""Inboxes of a served appliance: waits, streams, tools, two callers at once, and kills."""

import json
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.servedhub import ServedHub, serve
from tests.support.until import until

pytestmark = pytest.mark.slow
PATH = "/api/v1/inbox"


def send(hub, topic_id, text="look", client=None, **more):
    command = {"topic_id": topic_id, "sender": "boss", "content_raw": text, **more}
    return ServedHub.made((client or hub.http).post("/api/v1/messages", command))


def inbox(hub, name, client=None, **query):
    words = "&".join(f"{key}={value}" for key, value in {"name": name, **query}.items())
    answer = (client or hub.http).get(f"{PATH}?{words}")
    assert answer.status == 200, answer
    return answer.body


def texts(page):
    return [entry["message"]["content_raw"] for entry in page["entries"]]


def test_wait_ends_with_the_message_and_only_for_its_recipient(hub, ids):
    with ThreadPoolExecutor(2) as pool:
        ada = pool.submit(lambda: inbox(hub, "ada-w", hub.connect(), wait=30))
        bob = pool.submit(lambda: inbox(hub, "bob-w", hub.connect(), wait=1))
        until(lambda: hub.rows("SELECT 1 FROM x_inboxes WHERE name = 'ada-w'"), 20, "ada waits")
        send(hub, ids[1], "for you @ada-w")
        assert texts(ada.result(20)) == ["for you @ada-w"]
        assert texts(bob.result(20)) == []


def test_stream_gives_waiting_and_new_entries_and_continues_after_a_position(hub, ids):
    send(hub, ids[1], "one", to=["ada-s"])
    events = []

    def read(last_event_id):
        words = f"Last-Event-ID: {last_event_id}\r\n" if last_event_id else ""
        with socket.create_connection(("127.0.0.1", hub.port), 30) as sock:
            sock.sendall(
                f"GET {PATH}/stream?name=ada-s HTTP/1.1\r\nHost: 127.0.0.1:{hub.port}\r\n"
                f"Authorization: Bearer {hub.token}\r\n{words}\r\n".encode()
            )
            file = sock.makefile("rb")
            for line in file:
                if line.startswith(b"data: "):
                    events.append(json.loads(line[6:]))
                    yield events[-1]["message"]["content_raw"]

    first = read(None)
    assert next(first) == "one"
    send(hub, ids[1], "two", to=["ada-s"])
    assert next(first) == "two"
    first.close()
    send(hub, ids[1], "three", to=["ada-s"])
    again = read(events[-1]["position"])
    assert next(again) == "three"
    again.close()


def test_two_acknowledgements_at_once_settle_an_entry_once(hub, ids):
    sent = send(hub, ids[1], to=["ada-2"])
    command = {"ids": [sent["receipts"][0]["entry_id"]], "name": "ada-2"}

    def acknowledge(client):
        return client.post(f"{PATH}/acknowledge", command).body

    clients = [hub.connect() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        bodies = list(pool.map(acknowledge, clients))
    assert sorted(len(body["ids"]) for body in bodies) == [0, 0, 0, 1]


def test_tools_read_acknowledge_and_decline(hub, ids):
    def call(tool, **arguments):
        params = {"name": tool, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = hub.http.post("/mcp", body, headers={"Accept": "application/json"}).body
        return answer["result"]["structuredContent"]

    done = call("post_message", topic_id=ids[1], sender="boss", content="a", to=["ada-m"])
    assert done["waiting"] == ["ada-m: 0 before it"]
    call("post_message", topic_id=ids[1], sender="boss", content="b", to=["ada-m"])
    listed = call("my_inbox", name="ada-m")
    assert [entry["text"] for entry in listed["entries"]] == ["a", "b"]
    first, second = (entry["id"] for entry in listed["entries"])
    assert call("acknowledge", name="ada-m", ids=[first])["ids"] == [first]
    call("acknowledge", name="ada-m", ids=[second], declined_because="no time")
    assert call("my_inbox", name="ada-m")["entries"] == []
    (receipt,) = call("receipts", message_id=done["message_id"])["receipts"]
    assert receipt["state"] == "acknowledged"


def test_entries_survive_kills_and_are_settled_once(tmp_path):
    """Senders and recipients repeat their requests with one key until they are answered."""
    chance, names, count = random.Random(5), ("ada", "bob"), 60
    with serve(tmp_path) as hub:
        _, topic_id = hub.channel_with_topic("general")
        stop = threading.Event()

        def insist(verb):
            while not stop.is_set():
                try:
                    client = hub.connect()
                    answer = verb(client)
                    if answer.status < 500:
                        return answer
                except (OSError, ValueError, FileNotFoundError):
                    pass
                stop.wait(0.05)
            raise AssertionError("the test ended early")

        def post(number):
            command = {
                "topic_id": topic_id, "sender": "boss", "content_raw": str(number),
                "to": list(names),
            }  # fmt: skip
            key = {"Idempotency-Key": f"post-{number}"}
            return insist(lambda c: c.post("/api/v1/messages", command, headers=key)).status

        def consume(name):
            handled = []
            while len(handled) < count:
                page = insist(lambda c: c.get(f"{PATH}?name={name}&limit=7&wait=2")).body
                for entry in page["entries"]:
                    command = {"ids": [entry["id"]], "name": name}
                    key = {"Idempotency-Key": f"ack-{name}-{entry['id']}"}
                    url = f"{PATH}/acknowledge"
                    done = insist(
                        lambda c, url=url, command=command, key=key: c.post(
                            url, command, headers=key
                        )
                    )
                    assert done.status == 200, done
                    handled += done.body["ids"] and [entry["message"]["content_raw"]]
            return handled

        with ThreadPoolExecutor(6) as pool:
            recipients = [pool.submit(consume, name) for name in names]
            posts = [pool.submit(post, number) for number in range(count)]
            for _ in range(4):
                moment = threading.Event()
                moment.wait(chance.random())
                hub.kill()
                hub.start()
            assert [each.result(120) for each in posts] == [201] * count
            handled = [each.result(120) for each in recipients]
            stop.set()
        for each in handled:
            assert sorted(map(int, each)) == list(range(count))
        states = hub.rows("SELECT state, count(*) FROM x_entries GROUP BY state")
        assert states == [("acknowledged", 2 * count)]
        acknowledged = "SELECT count(*) FROM events WHERE name = 'entry.acknowledged'"
        assert hub.rows(acknowledged) == [(2 * count,)]


def test_answer_to_an_ask_reaches_an_asker_with_inbox(hub):
    def ask_and_answer(sender):
        body = {"text": "Deploy?", "sender": sender, "choices": ["yes", "no"]}
        asked = ServedHub.made(hub.http.post("/api/v1/asks", body))["ask"]
        answer = {"answer": "yes"}
        assert hub.http.post(f"/api/v1/asks/{asked['id']}/answer", answer).status == 200

    inbox(hub, "asker-1")
    ask_and_answer("asker-1")
    ask_and_answer("asker-2")
    (text,) = texts(inbox(hub, "asker-1"))
    assert text.startswith("yes\n")
    assert texts(inbox(hub, "asker-2")) == []
