"""Small JSON files of this program: their content, or none."""

import os

import pytest

from appliance.kernel.json_file import read_json


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": "x"}', b'{"\xff": 1}'])
def test_file_with_other_content_counts_as_missing(tmp_path, content):
    (tmp_path / "file.json").write_bytes(content)
    assert read_json(tmp_path / "file.json", dict[str, int]) is None


def test_reader_returns_a_file_and_nothing_for_a_folder_or_pipe(tmp_path):
    (tmp_path / "file.json").write_bytes(b'{"a": 1}')
    os.mkfifo(tmp_path / "fifo")
    names = ("file.json", "none", ".", "fifo")
    assert [read_json(tmp_path / name, dict[str, int]) for name in names] == [{"a": 1}] + [None] * 3
