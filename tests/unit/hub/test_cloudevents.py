"""Events as CloudEvents: what the specification asks for, and what its own library reads."""

import json

import jsonschema
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.formats.json import JSONFormat

from appliance.hub import cloudevents, resources, wire
from appliance.hub.cloudevents import BATCH, SINGLE, is_requested, of_envelope, of_list, origin_of
from appliance.hub.sse import event_stream
from appliance.kernel.auth import ANONYMOUS
from tests.support.http import Client, app_of

# The constraints of the specification's schema for the JSON format, 1.0.2.
TEXT = {"type": "string", "minLength": 1}
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["id", "source", "specversion", "type"],
    "properties": {
        "id": TEXT,
        "source": {**TEXT, "format": "uri-reference"},
        "specversion": {"const": "1.0"},
        "type": TEXT,
        "datacontenttype": {"type": ["string", "null"], "minLength": 1},
        "dataschema": {"type": ["string", "null"], "format": "uri", "minLength": 1},
        "subject": {"type": ["string", "null"], "minLength": 1},
        "time": {"type": ["string", "null"], "format": "date-time", "minLength": 1},
        "data_base64": {"type": ["string", "null"], "contentEncoding": "base64"},
    },
    # Names of attributes, extensions too: lowercase letters and digits (section 3.1.1).
    "propertyNames": {"pattern": "^([a-z0-9]+|data_base64)$"},
    "not": {"required": ["data", "data_base64"]},
}
DB_ID = "5f0c3f6e-91c4-4c38-9a55-0f9a2f6f7f10"
ORIGIN = origin_of(DB_ID, "e1")
ENVELOPE = (
    b'{"type":"event","event_id":7,"ts":"2026-02-04T20:00:00.123Z","name":"message.created",'
    b'"scope":{"channel_id":"ch_1","topic_id":"topic_1"},"data":{"message":{"id":"m","n":1.50}}}'
)


@pytest.fixture
def story(env):
    """A hub in which every kind of event was written; its client."""
    hub, who = env.hub, env.alice
    channel = json.loads(hub.create_channel(wire.CreateChannel("b"), who).body)["channel"]["id"]
    topic = json.loads(hub.create_topic(wire.CreateTopic(channel, "t"), who).body)["topic"]["id"]
    hub.rename_topic(topic, wire.RenameTopic("t2"), who)
    posted = hub.create_message(wire.CreateMessage(topic, "ci", 'é\n"data: x"\u2028'), who)
    message = json.loads(posted.body)["message"]["id"]
    hub.patch_message(message, wire.EditMessage("two"), who)
    hub.patch_message(message, wire.DeleteMessage("ci"), who)
    env.client = Client(app_of(resources.routes(hub)))
    env.topic = topic
    return env


def ask(story, path, accept):
    return story.client.simulate_get(path, headers={"Accept": accept})


def test_the_attributes_of_an_event():
    event = json.loads(of_envelope(ENVELOPE, ORIGIN))
    assert event == {
        "specversion": "1.0",
        "id": "e1:7",
        "source": f"urn:uuid:{DB_ID}",
        "type": "dev.agentlip.message.created",
        "time": "2026-02-04T20:00:00.123Z",
        "subject": "topic_1",
        "sequence": "0000000000000000007",
        "datacontenttype": "application/json",
        "data": {"message": {"id": "m", "n": 1.5}},
    }
    jsonschema.validate(event, SCHEMA)


def test_data_is_passed_on_byte_for_byte():
    assert b'"data":{"message":{"id":"m","n":1.50}}' in of_envelope(ENVELOPE, ORIGIN)


def test_an_event_of_a_channel_has_the_channel_as_its_subject():
    event = of_envelope(ENVELOPE.replace(b',"topic_id":"topic_1"', b""), ORIGIN)
    assert json.loads(event)["subject"] == "ch_1"


def test_database_with_a_foreign_id_has_a_source():
    assert origin_of("my db/1", "e").source == "/agentlip/my%20db/1"


def test_sequences_sort_as_text():
    event = [
        json.loads(of_envelope(ENVELOPE.replace(b":7,", b":%d," % number), ORIGIN))["sequence"]
        for number in (9, 10, 2**32, 2**63 - 1)
    ]
    assert event == sorted(event)


def test_the_list_as_a_batch(story):
    result = ask(story, "/api/v1/events", BATCH)
    assert result.status_code == 200
    assert result.headers["content-type"] == BATCH
    native = story.client.simulate_get("/api/v1/events").json
    assert result.headers["agentlip-cursor"] == str(native["replay_until"])
    assert [event["data"] for event in result.json] == [
        event["data_json"] for event in native["events"]
    ]
    assert len({event["id"] for event in result.json}) == len(result.json) == 6
    for event in result.json:
        jsonschema.validate(event, SCHEMA)
        assert event["source"] == f"urn:uuid:{story.hub.db_id}"


def test_the_cursor_leads_through_the_log(story):
    seen, cursor = [], 0
    while True:
        result = ask(story, f"/api/v1/events?limit=4&after={cursor}", BATCH)
        if not result.json:
            break
        seen += [int(event["sequence"]) for event in result.json]
        cursor = int(result.headers["agentlip-cursor"])
    assert seen == list(range(1, 7))
    assert cursor == 6


def test_the_librarys_reader_understands_every_event(story):
    members = ask(story, "/api/v1/events", BATCH).json
    assert members
    for member in members:
        event = JSONFormat().read(None, json.dumps(member))
        assert event.get_id() == member["id"]
        assert event.get_type().startswith("dev.agentlip.")
        assert event.get_time().isoformat(timespec="milliseconds") == member["time"].replace(
            "Z", "+00:00"
        )
        assert event.get_data() == member["data"]
        message = HTTPMessage({"content-type": SINGLE}, json.dumps(member).encode())
        assert from_http_event(message).get_extension("sequence") == member["sequence"]


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, False),
        ("", False),
        ("*/*", False),
        ("application/json", False),
        (BATCH, True),
        (f"application/json;q=0.5, {BATCH}", True),
        (f"application/json, {BATCH};q=0.9", False),
        (f"{BATCH};q=0", False),
        (f"{BATCH};q=rubbish", False),
        (BATCH.upper(), True),
        (SINGLE, False),
    ],
)
def test_batch_format_is_used_only_if_requested(accept, wanted):
    assert is_requested(accept, BATCH) is wanted


def test_a_stream_of_cloudevents(story):
    query = wire.StreamQuery(after=0, topic_id=[story.topic])
    stream = event_stream(story.hub, query, None, ANONYMOUS)
    converted = cloudevents.CloudEventStream(stream, ORIGIN)
    pieces = iter(converted)
    text = next(pieces)
    blocks = [block for block in text.decode().split("\n\n") if block]
    assert blocks[0] == "retry: 1000"
    assert [block.split("\n")[0] for block in blocks[1:]] == [f"id: {n}" for n in range(2, 7)]
    for block in blocks[1:]:
        number, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        jsonschema.validate(event, SCHEMA)
        assert event["id"] == f"e1:{number.removeprefix('id: ')}"
    converted.close()
    assert story.hub.waits.waiting == 0


def test_stream_format_is_selected_by_media_type(story):
    story.hub.feed.close()  # so the streams end after the log
    plain = ask(story, "/api/v1/events/stream", "text/event-stream")
    converted = ask(story, "/api/v1/events/stream", f"text/event-stream, {SINGLE}")
    assert plain.headers["content-type"] == converted.headers["content-type"]
    assert '"specversion"' not in plain.text
    assert converted.text.count('"specversion":"1.0"') == 6


def test_an_empty_list_is_an_empty_batch():
    assert of_list(b'{"events":[],"replay_until":12}', ORIGIN) == (b"[]", 12)


@pytest.mark.parametrize(
    ("data", "principal"),
    [
        (b'{"principal":"ci"}', "ci"),
        (b'{"principal":null}', None),
        (b"{}", None),
        (b'{"principal":7}', None),
        (b'{"principal":"a\\nb"}', None),
        (b"[1]", None),
    ],
)
def test_principal_is_an_extension_if_valid(data, principal):
    envelope = ENVELOPE[: ENVELOPE.index(b'{"message"')] + data + b"}"
    assert json.loads(of_envelope(envelope, ORIGIN)).get("principal") == principal


def test_event_keeps_the_id_of_the_epoch_in_which_it_was_written():
    origin = origin_of(DB_ID, "e3", ((1, "e1"), (100, "e2"), (200, "e3")))
    numbers = (1, 99, 100, 199, 200, 999)
    ids = [
        json.loads(of_envelope(ENVELOPE.replace(b":7,", b":%d," % number), origin))["id"]
        for number in numbers
    ]
    assert ids == ["e1:1", "e1:99", "e2:100", "e2:199", "e3:200", "e3:999"]
