"""One served hub for the tests that only add to it, and an S3 server."""

from collections.abc import Iterator

import pytest

from tests.support.hubprocess import HubProcess, served
from tests.support.s3server import S3Server, s3_server


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with served(tmp_path_factory.mktemp("hub"), "--no-limits") as running:
        for number in range(3):  # a log that is never empty
            running.request("POST", "/api/v1/channels", {"name": f"seed-{number}"})
        yield running


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server
