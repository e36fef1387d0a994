"""Files that are written completely or not at all."""

from contextlib import suppress

import pytest

from appliance.kernel.whole_file import new_file, whole_file, write_whole


def test_file_keeps_old_content_until_block_succeeds(tmp_path):
    path = tmp_path / "one"
    write_whole(path, b"old")
    with suppress(RuntimeError), whole_file(path, prefix=".new-") as file:
        file.write(b"half")
        file.flush()
        (other,) = [each.name for each in tmp_path.iterdir() if each != path]
        assert other.startswith(".new-one.")
        assert path.read_bytes() == b"old"
        raise RuntimeError
    assert path.read_bytes() == b"old"
    with whole_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_new_file_replaces_neither_file_nor_link(tmp_path):
    (tmp_path / "one").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    for name in ("one", "link"):
        with pytest.raises(FileExistsError), new_file(tmp_path / name):
            pass
    assert (tmp_path / "one").read_bytes() == b"old"
    assert not (tmp_path / "other").exists()
