"""A served appliance for each file of tests, and a stream for each test."""

import pytest

from tests.support.courier import TOML
from tests.support.hubprocess import served


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    workspace = tmp_path_factory.mktemp("courier")
    (workspace / "agentlip.toml").write_text(TOML)
    with served(workspace, "--no-limits") as hub:
        yield hub


@pytest.fixture
def stream(request):
    return f"tests/{request.node.name}".replace("[", "-").replace("]", "")
