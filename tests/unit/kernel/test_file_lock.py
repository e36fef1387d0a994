"""Locks of files: one holder, a limit of waiting, and no links."""

import os

import pytest

from appliance.kernel.errors import Conflict
from appliance.kernel.file_lock import file_lock, try_lock
from appliance.kernel.ownership import open_own

BUSY = Conflict("another process holds it")


def test_lock_has_one_holder_and_can_be_taken_again(tmp_path):
    path = tmp_path / "one.lock"
    with file_lock(path, BUSY), pytest.raises(Conflict) as refused, file_lock(path, BUSY):
        pass
    assert refused.value is BUSY
    assert path.exists()
    with file_lock(path, BUSY):
        pass


def test_lock_is_waited_for_until_no_seconds_are_left(tmp_path):
    path, waits = tmp_path / "one.lock", []
    holder = file_lock(path, BUSY)

    def release():
        waits.append(1)
        if len(waits) == 2:
            holder.__exit__(None, None, None)
        return 1.0

    holder.__enter__()
    with file_lock(path, BUSY, release):
        assert len(waits) == 2
        left = [1.0, 0.0]
        with pytest.raises(Conflict), file_lock(path, BUSY, lambda: left.pop(0)):
            pass
        assert left == []


def test_shared_lock_is_refused_while_the_lock_is_held(tmp_path):
    path = tmp_path / "one.lock"
    path.touch()
    with (
        open(open_own(path, os.O_RDONLY)) as reader,
        open(open_own(path, os.O_RDONLY)) as other,
    ):
        assert try_lock(reader.fileno(), shared=True)
        assert try_lock(other.fileno(), shared=True)
        assert not try_lock(reader.fileno())
    with file_lock(path, BUSY), open(open_own(path, os.O_RDONLY)) as reader:
        assert not try_lock(reader.fileno(), shared=True)


def test_link_is_not_followed(tmp_path):
    (tmp_path / "one.lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError), file_lock(tmp_path / "one.lock", BUSY):
        pass
    assert not (tmp_path / "other").exists()
