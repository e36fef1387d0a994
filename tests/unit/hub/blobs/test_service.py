"""Puts, reads and erasures of files: what is kept, who may read, what is refused."""

import errno
from unittest.mock import Mock

import msgspec
import pytest

from appliance.busfile import blobs as files
from appliance.hub.blobs import queries, wire
from appliance.kernel.errors import ApplianceError, Invalid, StorageFull
from appliance.workspace import blobs as named
from tests.support.bus import BusFixture
from tests.support.database_files import execute
from tests.unit.hub.blobs.conftest import POSTS, ref_of

LARGE = b"line\n" * 100_000


def limited(env, *channels, name="eve"):
    only = dict.fromkeys(POSTS, frozenset(channels))
    return msgspec.structs.replace(env.ann, id=f"tok_{name}", name=name, channels=only)


def leftovers(env):
    return [path.name for path in env.folder.glob(".*")]


def test_file_is_stored_once_by_its_hash(env):
    first = env.put(LARGE)
    assert first.created
    assert first.blob == wire.Blob(ref_of(LARGE), len(LARGE), "text/plain")
    again = env.put(LARGE, env.bob, media_type="text/html")
    assert not again.created
    assert again.blob == first.blob
    assert env.read(first.blob.ref) == LARGE
    assert len(list(env.folder.iterdir())) == 1


def test_empty_file_is_a_file(env):
    assert env.read(env.put(b"").blob.ref) == b""


def test_wrong_hash_is_refused_and_nothing_stays(env):
    with pytest.raises(wire.BlobMismatch):
        env.put(b"one", expected=ref_of(b"two").removeprefix("sha256:"))
    assert list(env.folder.iterdir()) == []
    assert env.rows("SELECT * FROM x_blobs") == []


@pytest.mark.parametrize("length", [11, None])
def test_file_above_the_limit_is_refused(new_env, length):
    env = new_env(file_bytes_max=10)
    env.put(b"x" * 10)
    pieces = iter([b"x" * 11, b""])
    body = wire_body(lambda _size: next(pieces), length)
    with pytest.raises(wire.BlobTooLarge, match="more than 10 bytes"):
        env.blobs.put(body, env.ann)
    assert leftovers(env) == []


def wire_body(read, length):
    from appliance.hub.blobs.service import Body

    return Body(read, length, "text/plain")


def test_body_that_ends_early_is_refused(env):
    pieces = iter([b"half", b""])
    with pytest.raises(Invalid, match="ended before"):
        env.blobs.put(wire_body(lambda _size: next(pieces), 8), env.ann)
    assert list(env.folder.iterdir()) == []


def test_quota_counts_each_principal_and_a_repeated_put_is_free(new_env):
    env = new_env(quota_bytes=100)
    put = env.put(b"a" * 60)
    assert (put.usage.bytes, put.usage.files) == (60, 1)
    with pytest.raises(wire.BlobQuota) as refused:
        env.put(b"b" * 41)
    assert refused.value.details["bytes"] == 60
    assert env.put(b"a" * 60).usage.bytes == 60
    assert env.put(b"a" * 60, env.bob).usage.bytes == 60
    assert env.put(b"b" * 40).usage.bytes == 100
    assert not env.file_of(ref_of(b"b" * 41)).exists()


def test_quota_frees_with_the_file(new_env):
    env = new_env(quota_bytes=100)
    ref = env.put(b"a" * 60).blob.ref
    env.blobs.erase(ref)
    assert env.put(b"b" * 100).usage.bytes == 100


def test_number_of_files_is_limited(env, monkeypatch):
    monkeypatch.setattr(wire, "FILES_MAX", 1)
    env.put(b"one")
    with pytest.raises(wire.BlobQuota):
        env.put(b"two")
    monkeypatch.setattr(wire, "ALL_FILES_MAX", 1)
    with pytest.raises(wire.BlobQuota, match="1 files already"):
        env.put(b"two", env.bob)


def test_puts_at_once_are_limited(env, monkeypatch):
    monkeypatch.setattr(wire, "PUTS_MAX", 1)

    def read(_size):
        with pytest.raises(wire.TooManyPuts):
            env.put(b"second")
        return b""

    env.blobs.put(wire_body(read, None), env.ann)
    env.put(b"third")


def test_full_disk_is_reported_and_leaves_nothing(env, monkeypatch):
    for number, kind in ((errno.ENOSPC, StorageFull), (errno.EIO, wire.BlobNotWritable)):
        failure = Mock(side_effect=OSError(number, "failed"))
        monkeypatch.setattr(files.PartialBlob, "add", failure)
        with pytest.raises(kind):
            env.put(b"x")
    monkeypatch.setattr("appliance.hub.blobs.service.free_bytes", lambda _path: 0)
    with pytest.raises(StorageFull):
        env.put(b"x")
    assert list(env.folder.iterdir()) == []


def test_range_is_read(env):
    ref = env.put(LARGE).blob.ref
    assert env.read(ref, start=4, stop=70_000) == LARGE[4:70_000]


def test_damaged_file_never_arrives_whole(env):
    ref = env.put(LARGE).blob.ref
    env.file_of(ref).write_bytes(LARGE[:-1] + b"x")
    file = env.blobs.find(ref, env.ann)
    sent = []
    with pytest.raises(wire.BlobDamaged):
        sent.extend(file.chunks(0, file.size))
    assert len(b"".join(sent)) < len(LARGE)
    env.file_of(ref).write_bytes(LARGE[:-1])
    with pytest.raises(wire.BlobDamaged):
        env.blobs.find(ref, env.ann)
    assert not env.put(LARGE).created
    assert env.read(ref) == LARGE, "a put repairs it"


@pytest.mark.parametrize("text", ["sha256:", "sha256:" + "A" * 64, "0" * 64, "sha256:" + "0" * 63])
def test_malformed_reference_is_refused(env, text):
    with pytest.raises(Invalid):
        wire.digest_of(text)
    with pytest.raises(wire.NoSuchBlob):
        env.blobs.find(text, env.ann)


@pytest.mark.parametrize("text", ["text", "text/plain\r\nX: y", "text/ plain", "a/b; c=d", "a/é"])
def test_unsafe_media_type_is_refused(text):
    with pytest.raises(Invalid):
        wire.check_media_type(text)
    assert wire.check_media_type("text/plain; charset=utf-8")
    assert wire.check_media_type(None) == "application/octet-stream"


def test_limited_token_reads_own_files_and_those_its_channels_name(env):
    reader = limited(env, env.channel_id)
    stranger = limited(env, "ch_other", name="mallory")
    ref = env.put(b"secret").blob.ref
    with pytest.raises(wire.NoSuchBlob):
        env.read(ref, reader)
    env.say(f"see {ref}")
    assert env.read(ref, reader) == b"secret"
    with pytest.raises(wire.NoSuchBlob):
        env.read(ref, stranger)
    env.put(b"secret", stranger)
    assert env.read(ref, stranger) == b"secret"


def test_bus_payload_is_read_by_bus_readers_only(env):
    bus = BusFixture(env.datadir.workspace)
    bus.send(payload={"text": "x" * 5000})
    (name,) = (path.name for path in env.folder.iterdir())
    bus.connection.close()
    ref = name.replace("-", ":")
    with pytest.raises(wire.NoSuchBlob):
        env.read(ref)
    worker = msgspec.structs.replace(env.ann, scopes=POSTS | {"bus:read"})
    assert b"xxx" in env.read(ref, worker)
    assert env.put(env.file_of(ref).read_bytes()).created
    assert env.read(ref, env.bob)
    with pytest.raises(wire.BlobNamedByBus):
        env.blobs.erase(ref)


def test_erased_file_is_gone_at_once(env):
    ref = env.put(b"secret").blob.ref
    env.say(f"see {ref}")
    env.blobs.erase(ref)
    with pytest.raises(wire.NoSuchBlob):
        env.blobs.find(ref, env.ann)
    assert not env.file_of(ref).exists()
    assert env.rows("SELECT * FROM x_blobs") == env.rows("SELECT * FROM x_blob_puts") == []
    with pytest.raises(wire.NoSuchBlob):
        env.blobs.erase(ref)


def test_backup_that_reads_defers_deletion_but_not_removal(env):
    ref = env.put(b"secret").blob.ref
    env.backs_up = True
    env.blobs.erase(ref)
    with pytest.raises(wire.NoSuchBlob):
        env.blobs.find(ref, env.ann)
    assert env.file_of(ref).exists()
    connection = env.datadir.database("hub")
    (query,) = [d.named for d in [named.declaration_of("hub").blobs]]
    assert execute(connection, query) == [], "the next backup does not name it"
    env.backs_up = False
    assert env.blobs.delete_removed() == 1
    assert not env.file_of(ref).exists()


def test_put_wins_against_a_pending_deletion(env):
    ref = env.put(b"text").blob.ref
    env.backs_up = True
    env.blobs.erase(ref)
    assert env.put(b"text", env.bob).created
    env.backs_up = False
    assert env.blobs.delete_removed() == 0
    assert env.read(ref, env.bob) == b"text"


def test_put_wins_against_a_deletion_that_has_begun(env, monkeypatch):
    ref = env.put(b"text").blob.ref
    env.backs_up = True
    env.blobs.erase(ref)
    begun = env.store.read(queries.removed)
    env.backs_up = False
    env.put(b"text")
    monkeypatch.setattr(queries, "removed", lambda _reader: begun)
    assert env.blobs.delete_removed() == 0
    assert env.read(ref) == b"text"


def test_content_that_the_bus_saved_again_outlives_its_row(env):
    ref = env.put(b"text" * 2000).blob.ref
    env.backs_up = True
    env.blobs.erase(ref)
    files.save(env.folder, b"text" * 2000)
    at = (env.clock.ms + 5000) / 1000
    files.os.utime(env.file_of(ref), (at, at))
    env.backs_up = False
    env.blobs.delete_removed()
    assert env.file_of(ref).exists()
    assert env.rows("SELECT * FROM x_blobs") == []


def test_failed_commit_refuses_the_put(env):
    from tests.unit.hub.conftest import FaultyRunner

    FaultyRunner.failure = RuntimeError("broken")
    with pytest.raises((ApplianceError, RuntimeError)):
        env.put(b"text")
    FaultyRunner.failure = None
    assert env.put(b"text").created
    assert leftovers(env) == []


def test_partial_files_are_discarded(env):
    partial = files.PartialBlob(env.folder)
    partial.add(b"half")
    assert files.discard_partial(env.folder) == 1
    assert list(env.folder.iterdir()) == []
