"""A served appliance with two agents that take work, and callers elsewhere."""

from collections.abc import Iterator

import pytest

from tests.http.a2a.agents import SETTINGS, A2aHub, made_token
from tests.support.servedhub import serve


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[A2aHub]:
    with serve(tmp_path_factory.mktemp("hub"), settings=SETTINGS) as running:
        scopes = ["hub:read", "hub:post"]
        yield A2aHub(
            running,
            made_token(running, "caller", ["hub:post"]),
            made_token(running, "builder", scopes),
            made_token(running, "stranger", [*scopes, "ask:answer"]),
        )
