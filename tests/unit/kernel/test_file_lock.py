"""Locks of files: one holder, and no links."""

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


def test_shared_lock_is_refused_while_the_lock_is_held(tmp_path):
    path = tmp_path / "one.lock"
    path.touch()
    with open(open_own(path, os.O_RDONLY)) as reader, open(open_own(path, os.O_RDONLY)) as other:
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
