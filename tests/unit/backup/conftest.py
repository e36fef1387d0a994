"""A workspace with some messages, keys for its backups, and one real S3 server for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pyrage
import pytest

from appliance.backup.settings import TargetSettings
from tests.support.backup_targets import TargetBackups
from tests.support.real_backups import Backups
from tests.support.restored_workspace import BackedUp
from tests.support.s3server import S3Server, s3_server
from tests.support.workspaces import Filled


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
def local(tmp_path: Path, target: TargetSettings) -> TargetBackups:
    """Backups of a workspace with that target."""
    return TargetBackups(tmp_path / "workspace", target)


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    filled = Filled(tmp_path / "workspace", messages=200)
    identity = filled.datadir.dir / "identity"
    identity.mkdir(mode=0o700)
    (identity / "keypair.json").write_text('{"ed25519_pubkey": "ab12"}')
    (identity / "keypair.json").chmod(0o600)
    filled.datadir.settings_file.write_text("[hub]\n")
    return filled


@pytest.fixture
def backups(filled: Filled) -> Backups:
    return Backups(filled.path)


@pytest.fixture
def workspace(tmp_path: Path) -> BackedUp:
    return BackedUp(tmp_path / "w")


class AgeKey:
    """A key as `age-keygen -o FILE` writes it."""

    def __init__(self, file: Path) -> None:
        identity = pyrage.x25519.Identity.generate()
        self.recipient = str(identity.to_public())
        self.file = file
        file.write_text(f"# created: 2026\n# public key: {self.recipient}\n{identity}\n")


@pytest.fixture
def key(tmp_path: Path) -> AgeKey:
    return AgeKey(tmp_path / "key.txt")
