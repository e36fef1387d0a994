"""An event belongs to a scope."""

import pytest

from appliance.hub import events


def test_event_without_a_scope_is_not_written(bare_log):
    with pytest.raises(ValueError, match="no scope"):
        events.append(bare_log.tx, "x", ("message", "m"), b"{}", channel_id=None)
