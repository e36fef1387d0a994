"""The one response of server-sent events, its end and its cursor."""

import pytest

from appliance.kernel.errors import Invalid
from appliance.web.sse_stream import SseStream, last_event_id


class RecordingSource:
    """A source that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def wake(self):
        self.calls.append("wake")

    def end(self):
        self.calls.append("end")


def test_refused_stream_releases_its_source_and_what_began_before():
    source, ended = RecordingSource(), []

    def refuse(_stop):
        raise Invalid("no")

    with pytest.raises(Invalid):
        SseStream(source, lambda _stop: lambda: ended.append("first"), refuse)
    assert ended == ["first"]
    assert source.calls == ["end", "wake"]


@pytest.mark.parametrize(("header", "event_id"), [(None, None), ("", None), ("0", 0), ("41", 41)])
def test_last_event_id_is_a_number_or_absent(header, event_id):
    assert last_event_id(header) == event_id


@pytest.mark.parametrize("header", ["-1", "1.5", "abc", "²", "٣", "1" * 19, " 1"])
def test_any_other_last_event_id_is_refused(header):
    with pytest.raises(Invalid) as refused:
        last_event_id(header)
    assert refused.value.details == {"header": "Last-Event-ID"}
