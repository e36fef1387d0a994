"""`server.json` while a hub runs: written again when it is gone, never taken from another hub."""

import io
import json
import os
import stat

import pytest

from appliance.kernel.log import Log
from appliance.process.server_file import ServerFileKeeper
from appliance.workspace.datadir import DataDir, ServerFile, WriterLock, read_lock


class Kept:
    def __init__(self, path):
        self.datadir = DataDir(path)
        self.datadir.dir.mkdir()
        self.datadir.write_private(self.datadir.token_file, "secret\n")
        self.output = io.BytesIO()
        self.lock = WriterLock(self.datadir, "ours")
        self.lock.acquire()
        server = ServerFile("ours", "db", 4711)
        self.keeper = ServerFileKeeper(self.lock, server, Log(self.output))
        self.path = self.datadir.server_file
        self.keeper.publish()

    def round(self):
        return self.keeper.run_once(0)["written"]

    def content(self):
        return json.loads(self.path.read_text())

    def write_foreign(self, **more):
        self.path.write_text(json.dumps({"instance_id": "theirs", "port": 1, **more}))


@pytest.fixture
def kept(tmp_path):
    kept = Kept(tmp_path)
    yield kept
    kept.lock.release()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_unchanged_server_file_is_not_written(kept):
    before = kept.path.stat()
    assert [kept.round() for _ in range(3)] == [0, 0, 0]
    assert kept.path.stat() == before


def test_removed_lock_file_is_taken_again(kept):
    kept.datadir.lock_file.unlink()
    assert not read_lock(kept.datadir).held
    kept.round()
    view = read_lock(kept.datadir)
    assert (view.held, view.written.pid, kept.lock.intact()) == (True, os.getpid(), True)
    kept.datadir.lock_file.unlink()
    other = WriterLock(kept.datadir, "theirs")
    other.acquire()
    kept.round()
    assert not kept.lock.intact(), "another process was faster, and readiness says so"
    other.release()


def test_removed_server_file_is_written_again_for_its_owner_only(kept):
    before = kept.content()
    kept.path.unlink()
    old = os.umask(0)
    try:
        assert [kept.round(), kept.round()] == [0, 1]
    finally:
        os.umask(old)
    assert kept.content() == before
    assert mode(kept.path) == 0o600
    assert kept.round() == 0
    assert b"removed or damaged while the hub runs" in kept.output.getvalue()


def test_server_file_of_another_instance_is_kept(kept):
    kept.write_foreign()
    theirs = kept.path.read_text()
    assert [kept.round() for _ in range(3)] == [0, 0, 0]
    kept.keeper.remove()
    assert kept.path.read_text() == theirs
    assert kept.output.getvalue().count(b"belongs to another instance") == 1
    kept.path.unlink()  # that hub has ended
    assert [kept.round(), kept.round()] == [0, 1]
    assert kept.content()["instance_id"] == "ours"


@pytest.mark.parametrize("text", ["", "{", "{}", "[]"])
def test_unreadable_server_file_is_replaced_in_the_second_round(kept, text):
    """In the first one another program may be in the middle of writing it."""
    kept.path.write_text(text)
    assert kept.round() == 0
    assert kept.path.read_text() == text
    assert kept.round() == 1
    assert kept.content()["instance_id"] == "ours"


def test_files_with_the_token_readable_by_others_are_restricted_again(kept):
    for path in (kept.path, kept.datadir.token_file):
        path.chmod(0o644)
        assert kept.round() == 0
        assert mode(path) == 0o600
