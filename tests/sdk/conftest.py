"""A served appliance for each file, and clients that reconnect without the long breaths."""

from collections.abc import Iterator

import pytest

from appliance.kernel.retry import RetrySettings
from appliance.sdk import stream_follower
from tests.support.courier import TOML
from tests.support.hubprocess import HubProcess, served


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    workspace = tmp_path_factory.mktemp("courier")
    (workspace / "agentlip.toml").write_text(TOML)
    with served(workspace, "--no-limits") as hub:
        yield hub


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    return f"tests/{request.node.name}".replace("[", "-").replace("]", "")


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_follower, "RECONNECT", RetrySettings(0.05, 0.05))
    monkeypatch.setattr(stream_follower, "GOING_AWAY_WAIT_SECONDS", 0.05)
