"""A served appliance for each file, and clients that reconnect without the long breaths."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.kernel.retry import RetrySettings
from appliance.sdk import stream_follower
from appliance.sdk.network.agent import NetworkAgent
from tests.support.courier import TOML
from tests.support.hubprocess import HubProcess, served
from tests.support.network import NetworkFixture


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
def task(request: pytest.FixtureRequest) -> str:
    return f"task-{request.node.name}".replace("[", "-").replace("]", "")


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_follower, "RECONNECT", RetrySettings(0.05, 0.05))
    monkeypatch.setattr(stream_follower, "GOING_AWAY_WAIT_SECONDS", 0.05)


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NetworkFixture]:
    network = NetworkFixture(tmp_path, monkeypatch)
    yield network
    network.close()


@pytest.fixture
def private_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NetworkFixture]:
    network = NetworkFixture(tmp_path, monkeypatch, "private-directory")
    yield network
    network.close()


@pytest.fixture
def anna(network: NetworkFixture) -> NetworkAgent:
    """An agent that is a contact of bert."""
    anna = network.agent("anna")
    network.agent("bert")
    network.connect("anna", "bert")
    return anna
