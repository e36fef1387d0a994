"""A poll between a commit and its publication: the next one has the event."""

from types import SimpleNamespace

import msgspec

from appliance.hub import wire
from appliance.hub.resources import routes


def list_events(env):
    respond = next(r.resource for r in routes(env.hub) if r.path == "/api/v1/events").on_get
    context = SimpleNamespace(query=wire.EventsQuery(tail=1), principal=env.alice)
    resp = SimpleNamespace(data=b"")
    respond(SimpleNamespace(context=context), resp)
    return [event["event_id"] for event in msgspec.json.decode(resp.data)["events"]]


def test_event_published_after_a_poll_is_in_the_next_one(env, monkeypatch):
    held = []
    with monkeypatch.context() as patch:
        patch.setattr(env.hub.store, "_publish", held.append)
        env.hub.create_channel(wire.CreateChannel("general"), env.alice)
        assert list_events(env) == []
    for items in held:
        env.feed.publish(items)
    assert list_events(env) == [env.feed.head]
