"""Clients that reconnect without the long breaths."""

import pytest

from appliance.sdk import stream_follower


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_WAIT_SECONDS", "LONGEST_WAIT_SECONDS", "GOING_AWAY_WAIT_SECONDS"):
        monkeypatch.setattr(stream_follower, name, 0.05)
