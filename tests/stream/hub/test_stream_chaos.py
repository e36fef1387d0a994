"""Everything at once: clients, plugins, moves, slow readers, broken connections, kills. Then the
tables agree with the log, and every listener received the events of the log.

TESTS_CHAOS_SECONDS makes it longer, TESTS_CHAOS_SEED different.
"""

import contextlib
import http.client
import json
import os
import random
import re
import threading
import time

import pytest

from tests.support.servedhub import serve
from tests.support.socketclient import Closed, Refused, SocketClient
from tests.support.until import until

SECONDS = float(os.environ.get("TESTS_CHAOS_SECONDS", "10"))
SEED = os.environ.get("TESTS_CHAOS_SEED", "7")
ENDINGS = (OSError, Closed, Refused, ValueError, http.client.HTTPException)
REFUSALS = {400, 404, 409, 503}  # what may be said to a change that somebody else overtook
MARKS = """
import re
def enrich(message, config):
    return [
        {"kind": "mark", "span": {"start": m.start(), "end": m.end()}, "data": {"word": m[0]}}
        for m in re.finditer(r"!\\w+", message["content_raw"])
    ]
"""
SETTINGS = """
[[plugins.use]]
name = "marks"
type = "linkifier"
module = "marks.py"
[[plugins.use]]
name = "urls"
type = "extractor"
builtin = "urls"
"""
CONSTANTS = {"appliance.hub.plugins.loops.DEBOUNCE_MS": 50}


class Actor(threading.Thread):
    """Does something again and again until `over`, and starts again after the hub was killed."""

    def __init__(self, hub, name):
        super().__init__(daemon=True)
        self.hub, self.random = hub, random.Random(f"{SEED} {name}")
        self.over = threading.Event()
        self.error = None

    def run(self):
        try:
            while not self.over.is_set():
                with contextlib.suppress(*ENDINGS):
                    self.act()
                self.over.wait(0.02)
        except BaseException as error:
            self.error = error

    def end(self, seconds=30):
        self.over.set()
        self.join(seconds)
        if self.error is not None:
            raise self.error
        assert not self.is_alive()


class Writer(Actor):
    """Posts, edits, deletes, moves, attaches, renames; `promised` are the events in the replies."""

    def __init__(self, hub, name, topics, message_ids):
        super().__init__(hub, name)
        self.topics, self.message_ids, self.promised = topics, message_ids, set()

    def act(self):
        client = self.hub.connect()
        while not self.over.is_set():
            answer = self.change(client)
            if answer.status in (200, 201):
                for body in answer.body.get("results", [answer.body]):
                    self.note(body)
            else:
                assert answer.status in REFUSALS, answer

    def note(self, body):
        self.promised |= {body.get("event_id"), *body.get("event_ids", ())} - {None}
        if "message" in body:
            self.message_ids.append(body["message"]["id"])

    def message(self):
        number, topic = self.random.randrange(1000), self.random.choice(self.topics)
        text = f"!w{number} and https://example.com/{number}"
        return {"topic_id": topic, "sender": "chaos", "content_raw": text}

    def change(self, client):
        what = self.random.choices(
            ("post", "batch", "edit", "delete", "move", "attach", "rename"),
            (50, 5, 25, 5, 15, 5, 5),
        )[0]
        number, message = self.random.randrange(1000), self.message()
        topic, text = message["topic_id"], message["content_raw"]
        if what == "attach":
            body = {"kind": "file", "value_json": {"n": number}}
            return client.post(f"/api/v1/topics/{topic}/attachments", body)
        if what == "rename":
            return client.patch(f"/api/v1/topics/{topic}", {"title": f"topic {number}"})
        if what == "batch":
            messages = [self.message() for _ in range(5)]
            return client.post("/api/v1/messages/batch", {"messages": messages})
        if what == "post" or not self.message_ids:
            return client.post("/api/v1/messages", message)
        body = {
            "edit": {"op": "edit", "content_raw": text},
            "delete": {"op": "delete", "actor": "chaos"},
            "move": {"op": "move_topic", "to_topic_id": topic, "mode": self.mode()},
        }[what]
        return client.patch(f"/api/v1/messages/{self.random.choice(self.message_ids)}", body)

    def mode(self):
        return self.random.choices(("one", "later", "all"), (20, 1, 1))[0]


class Requester(Writer):
    """Posts over a socket."""

    def act(self):
        with SocketClient(self.hub.port, self.hub.token) as client:
            client.hello(self.hub.head, subscriptions={})
            while not self.over.is_set():
                self.note(client.request("message.create", self.message())["body"])


class Listener(Actor):
    """Follows the log by its cursor; hangs up now and then, and may read slowly."""

    def __init__(self, hub, name, wanted, *, slow=False):
        super().__init__(hub, name)
        self.wanted, self.slow = wanted, slow
        self.cursor, self.got = 0, []

    def act(self):
        patience = self.random.randrange(1, 500)
        small = 4096 if self.slow else None
        with SocketClient(self.hub.port, self.hub.token, receive_buffer=small) as client:
            more = {} if self.wanted is None else {"subscriptions": self.wanted}
            client.hello(self.cursor, **more)
            for _ in range(patience):
                event = client.recv(seconds=1.0)
                assert event["event_id"] > self.cursor
                self.cursor = event["event_id"]
                self.got.append((event["event_id"], event["name"], event["data"]))
                if self.slow and not self.over.is_set():
                    self.over.wait(0.01)

    def wants(self, channel, *topics):
        if self.wanted is None:
            return True
        return channel in self.wanted.get("channels", ()) or bool(
            {*topics} & {*self.wanted.get("topics", ())}
        )


@pytest.mark.slow
def test_tables_and_listeners_agree_with_the_log_after_random_faults(tmp_path):
    (tmp_path / "marks.py").write_text(MARKS)
    rng = random.Random(SEED)
    with serve(tmp_path, settings=SETTINGS, constants=CONSTANTS) as hub:
        channel, first = hub.channel_with_topic("chaos")
        topics = [first, *(hub.topic(channel, f"t{number}") for number in range(3))]
        message_ids = []
        writers = [
            kind(hub, f"writer {number}", topics, message_ids)
            for number, kind in enumerate((Writer, Writer, Writer, Requester))
        ]
        listeners = [
            Listener(hub, "all", None),
            Listener(hub, "slow", None, slow=True),
            Listener(hub, "channel", {"channels": [channel]}),
            Listener(hub, "one", {"topics": topics[:1]}),
            Listener(hub, "two", {"topics": topics[2:]}, slow=True),
        ]
        for actor in (*writers, *listeners):
            actor.start()
        over = time.monotonic() + SECONDS
        kills = 0
        while time.monotonic() < over or kills < 2:
            grown = hub.head + rng.randrange(100, 800)
            until(lambda g=grown: hub.head > g or time.monotonic() > over, 60, "the log grows")
            hub.kill() if rng.random() < 0.8 else hub.stop()
            hub.start()
            kills += 1
        for writer in writers:
            writer.end()
        until(lambda: followed(hub), 60, "the plugins have followed the log")
        log = hub.rows(
            "SELECT event_id, name, data_json, scope_channel_id, scope_topic_id, scope_topic_id2"
            " FROM events ORDER BY event_id"
        )
        assert [row[0] for row in log] == list(range(1, len(log) + 1))
        assert set().union(*(writer.promised for writer in writers)) <= {row[0] for row in log}
        assert hub.rows("PRAGMA integrity_check") == [("ok",)]
        for listener in listeners:
            expected = [
                (number, name, json.loads(data))
                for number, name, data, *scope in log
                if listener.wants(*scope)
            ]
            listener.slow = False
            until(
                lambda each=listener, last=expected[-1][0]: each.error or each.cursor >= last,
                60, "a listener has received all events",
            )  # fmt: skip
            listener.end()
            assert listener.got == expected
        assert rebuilt(log) == stored(hub)


def followed(hub):
    plugins = hub.request("GET", "/api/v1/plugins")["plugins"]
    head = hub.head
    return all(each["cursor"] == head and not each["pending"] for each in plugins)


def rebuilt(log):
    """Topics, messages, attachments and enrichments by the log alone."""
    topics, messages, attachments, enriched = {}, {}, {}, {}
    for _, name, text, *_ in log:
        data = json.loads(text)
        if name == "topic.created":
            topics[data["topic"]["id"]] = data["topic"]["title"]
        elif name == "topic.renamed":
            assert topics[data["topic_id"]] == data["old_title"]
            topics[data["topic_id"]] = data["new_title"]
        elif name == "message.created":
            message = data["message"]
            messages[message["id"]] = [message["topic_id"], message["content_raw"], 1, None]
        elif name == "message.edited":
            messages[data["message_id"]][1:3] = [data["new_content"], data["version"]]
        elif name == "message.deleted":
            messages[data["message_id"]][1:] = ["[deleted]", data["version"], data["deleted_by"]]
        elif name == "message.moved_topic":
            message = messages[data["message_id"]]
            assert message[0] == data["old_topic_id"]
            message[0], message[2] = data["new_topic_id"], data["version"]
        elif name == "topic.attachment_added":
            attachment = data["attachment"]
            assert attachment["id"] not in attachments
            attachments[attachment["id"]] = [
                attachment["topic_id"], attachment["kind"], attachment["value_json"]
            ]  # fmt: skip
        elif name == "message.enriched":
            words = [each["data"]["word"] for each in data["enrichments"]]
            _, content, version, deleted_by = messages[data["message_id"]]
            assert (data["version"], deleted_by) == (version, None)
            assert words == re.findall(r"!\w+", content)
            enriched[data["message_id"]] = words
    with_words = {message: words for message, words in enriched.items() if words}
    return topics, messages, attachments, with_words


def stored(hub):
    """The same by the tables."""
    messages = hub.rows("SELECT id, topic_id, content_raw, version, deleted_by FROM messages")
    attachments = hub.rows("SELECT id, topic_id, kind, value_json FROM topic_attachments")
    enriched = {}
    for message, data in hub.rows("SELECT message_id, data_json FROM enrichments ORDER BY rowid"):
        enriched.setdefault(message, []).append(json.loads(data)["word"])
    return (
        dict(hub.rows("SELECT id, title FROM topics")),
        {row[0]: [*row[1:]] for row in messages},
        {row[0]: [row[1], row[2], json.loads(row[3])] for row in attachments},
        enriched,
    )
