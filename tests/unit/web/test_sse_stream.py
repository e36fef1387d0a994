"""The one response of server-sent events, over a source that the test controls."""

import pytest

from appliance.kernel.errors import Invalid
from appliance.web.sse_stream import HEARTBEAT_LINE, RETRY_LINE, SseStream, last_event_id


class ScriptedSource:
    """Returns the given batches one by one; None is a wait that ends without an event."""

    def __init__(self, *batches: list[bytes] | None) -> None:
        self.batches = list(batches)
        self.closed = False
        self.calls: list[str] = []

    def begin(self):
        return [RETRY_LINE, b"data: stored\n\n"]

    def take(self):
        if not self.batches:
            self.closed = True
            return None
        return self.batches.pop(0)

    def wait(self, seconds):
        self.calls.append(f"wait {seconds}")
        return self.closed

    def wake(self):
        self.calls.append("wake")

    def end(self):
        self.calls.append("end")


def test_stored_events_come_first_then_new_ones_then_heartbeats():
    stream = SseStream(ScriptedSource([b"data: 1\n\n", b"data: 2\n\n"], None))
    assert list(stream) == [
        RETRY_LINE + b"data: stored\n\n",
        b"data: 1\n\ndata: 2\n\n",
        HEARTBEAT_LINE,
    ]


def test_refused_stream_releases_its_source_and_what_began_before():
    source, ended = ScriptedSource(), []

    def refuse(_stop):
        raise Invalid("no")

    with pytest.raises(Invalid):
        SseStream(source, lambda _stop: lambda: ended.append("first"), refuse)
    assert ended == ["first"]
    assert source.calls == ["end", "wake"]


def test_close_releases_the_source_once():
    source = ScriptedSource()
    stream = SseStream(source)
    stream.close()
    stream.close()
    assert source.calls == ["end", "wake"]


@pytest.mark.parametrize(("header", "event_id"), [(None, None), ("", None), ("0", 0), ("41", 41)])
def test_last_event_id_is_a_number_or_absent(header, event_id):
    assert last_event_id(header) == event_id


@pytest.mark.parametrize("header", ["-1", "1.5", "abc", "²", "٣", "1" * 19, " 1"])
def test_any_other_last_event_id_is_refused(header):
    with pytest.raises(Invalid) as refused:
        last_event_id(header)
    assert refused.value.details == {"header": "Last-Event-ID"}
