"""The cursor of server-sent events."""

import pytest

from appliance.kernel.errors import Invalid
from appliance.web.sse_stream import last_event_id


@pytest.mark.parametrize(("header", "event_id"), [(None, None), ("", None), ("0", 0), ("41", 41)])
def test_last_event_id_is_a_number_or_absent(header, event_id):
    assert last_event_id(header) == event_id


@pytest.mark.parametrize("header", ["-1", "1.5", "abc", "²", "٣", "1" * 19, " 1"])
def test_any_other_last_event_id_is_refused(header):
    with pytest.raises(Invalid) as refused:
        last_event_id(header)
    assert refused.value.details == {"header": "Last-Event-ID"}
