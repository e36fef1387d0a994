"""Live views as server-sent events."""

import json

from appliance.courier import wire
from appliance.courier.live_view import LiveView, LiveViewEvents
from appliance.web.sse_stream import SseStream
from tests.support.courier import ANYBODY, INBOX
from tests.support.courier_http import enqueue


def test_live_view_starts_with_hello_and_sends_changes(courier, client):
    enqueue(client, "a")
    live = LiveView(courier.service, ANYBODY, wire.LiveQuery(snapshot=True))
    stream = SseStream(LiveViewEvents(live))
    pieces = iter(stream)
    first = next(pieces)
    assert json.loads(first.removeprefix(b"data: "))["connected"] is True
    assert b'"op":"add"' in next(pieces)
    enqueue(client, "b")
    change = json.loads(next(pieces).removeprefix(b"data: "))
    assert (change["addr"], change["env"]["id"], change["op"]) == (INBOX, "b", "update")
    stream.close()
