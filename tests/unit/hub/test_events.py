"""Committed events on their way from the writer to the listeners."""

import pickle

import msgspec
import pytest

from appliance.hub import events
from appliance.hub.events import CommittedEvent


def committed():
    return CommittedEvent(7, "2026-01-02T03:04:05.000Z", "topic.created", "ch_1", "t_1", None, "{}")


def test_envelope_contains_only_the_scopes_of_the_event():
    assert msgspec.json.decode(committed().envelope) == {
        "type": "event", "event_id": 7, "ts": "2026-01-02T03:04:05.000Z",
        "name": "topic.created", "scope": {"channel_id": "ch_1", "topic_id": "t_1"}, "data": {},
    }  # fmt: skip


def test_pickled_event_keeps_its_envelope():
    assert pickle.loads(pickle.dumps(committed())).envelope == committed().envelope


def test_events_are_compared_by_identity():
    assert committed() != committed()


def test_event_without_a_scope_is_not_written(bare_log):
    with pytest.raises(ValueError, match="no scope"):
        events.append(bare_log.tx, "x", ("message", "m"), b"{}", channel_id=None)
