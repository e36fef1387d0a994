"""Large payloads of the worker bus are backed up and restored with the rows that name them."""

import sqlite3
from pathlib import Path

import msgspec
import pytest

from appliance.backup import restore
from appliance.backup.errors import VerificationFailed
from appliance.workspace import blobs
from tests.support.bus import BusFixture
from tests.support.restored_workspace import BackedUp

LARGE = "x" * 5000
"""The payload of a message whose blob is a file."""


@pytest.fixture
def bus(workspace: BackedUp) -> BusFixture:
    return BusFixture(workspace.datadir.workspace)


def send(bus: BusFixture, text: str) -> Path:
    """Publishes a large payload; the file of its blob."""
    before = set(blobs_of(bus))
    bus.send(payload={"text": LARGE + text})
    (name,) = set(blobs_of(bus)) - before
    return bus.paths.blobs / name


def blobs_of(bus: BusFixture) -> dict[str, bytes]:
    folder = bus.paths.blobs
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def test_restore_brings_back_blobs_of_backed_up_rows(workspace: BackedUp, bus: BusFixture) -> None:
    kept = send(bus, "kept")
    bus.paths.blobs.joinpath("sha256-" + "0" * 64).write_bytes(b"no row names it")
    made = workspace.back_up()
    (file,) = [file for file in made.files if file.kind == "blob"]
    assert (file.path, file.sha256) == (f".worker-state/blobs/{kept.name}", kept.name[7:])
    assert made.stores["bus"].missing_blobs == 0
    before = kept.read_bytes()
    kept.write_bytes(b"damaged")
    later = send(bus, "later")
    bus.connection.close()
    result = workspace.restore(made)
    assert kept.read_bytes() == before
    assert later.exists(), "it may be of a message that another program has"
    assert result.rows["bus"]["messages"] == 1
    safety = workspace.backups.read(result.safety)
    assert [f.path for f in safety.files if f.kind == "blob"] == [
        f".worker-state/blobs/{later.name}"
    ]
    assert safety.stores["bus"].missing_blobs == 1, "the damaged one"


def test_blob_added_during_backup_is_not_included(
    workspace: BackedUp, bus: BusFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program publishes after the cut, and removes what the retention has pruned."""
    kept, pruned = send(bus, "kept"), send(bus, "pruned")
    list_named = blobs.list_named

    def list_and_publish(connection: sqlite3.Connection, store: str) -> list[str]:
        listed = list_named(connection, store)
        if store == "bus":
            send(bus, "added")
            pruned.unlink(missing_ok=True)
        return listed

    monkeypatch.setattr(blobs, "list_named", list_and_publish)
    made = workspace.back_up()
    assert [f.sha256 for f in made.files if f.kind == "blob"] == [kept.name[7:]]
    assert made.stores["bus"].missing_blobs == 1
    assert made.stores["bus"].rows["messages"] == 2


def test_blob_that_is_missing_is_reported_and_its_backup_can_be_restored(
    workspace: BackedUp, bus: BusFixture
) -> None:
    send(bus, "kept")
    send(bus, "missing").unlink()
    damaged = send(bus, "damaged")
    damaged.write_bytes(b"other")
    link = send(bus, "link")
    link.unlink()
    link.symlink_to(workspace.datadir.token_file)
    made = workspace.back_up()
    assert made.stores["bus"].missing_blobs == 3
    assert sum(file.kind == "blob" for file in made.files) == 1
    bus.connection.close()
    workspace.restore(made)


def test_restore_refuses_a_backup_that_lacks_a_blob(workspace: BackedUp, bus: BusFixture) -> None:
    send(bus, "kept")
    made = workspace.back_up()
    bus.connection.close()
    lacking = msgspec.structs.replace(
        made, files=tuple(file for file in made.files if file.kind != "blob")
    )
    with pytest.raises(VerificationFailed, match="missing_blobs is 1; the manifest says 0"):
        restore.apply(msgspec.structs.replace(workspace.job(made), manifest=lacking), None)
