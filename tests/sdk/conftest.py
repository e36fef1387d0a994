"""Clients that reconnect without the long breaths."""

import pytest

from appliance.kernel.retry import RetrySettings
from appliance.sdk import stream_follower


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_follower, "RECONNECT", RetrySettings(0.05, 0.05))
    monkeypatch.setattr(stream_follower, "GOING_AWAY_WAIT_SECONDS", 0.05)
