"""One real S3 server for all tests of this folder; each test has a prefix of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.backup.settings import TargetSettings
from tests.support.backupsets import SetsFixture
from tests.support.s3server import S3Server, s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return tmp_path.name


@pytest.fixture(params=["directory", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> TargetSettings:
    """A target of each kind."""
    if request.param == "directory":
        (tmp_path / "disk").mkdir()
        return TargetSettings(name="offsite", url=f"file://{tmp_path / 'disk'}")
    server: S3Server = request.getfixturevalue("s3")
    return server.target(prefix=prefix)


@pytest.fixture
def local(tmp_path: Path, target: TargetSettings) -> SetsFixture:
    """Sets of a workspace with that target, in parts of 1,000 bytes."""
    return SetsFixture(tmp_path / "workspace", target, upload_part_bytes=1000)
