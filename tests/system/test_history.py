"""Debian changelogs of every kind are read for the history of this machine."""

import gzip
from pathlib import Path

import pytest

from tests.system import history

CHANGELOG = """\
some words before the first entry
bash (5.2-1+b1) sid; urgency=low, binary-only=yes

  * Binary-only non-maintainer upload for amd64; no source changes.

 -- all / amd64 / i386 Build Daemon (x86-01) <buildd@example.org>  Mon, 02 Jan 2023 13:06:21 +0100

bash (5.2-1) unstable; urgency=medium

  * Thanks to J\xf6rg.
 -- <nameless@example.org>  Sat, 31 Dec 2022 16:40:30 +0100

bash (5.1) unstable

  * Nobody signed this.

Local variables:
mode: debian-changelog
"""


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_changelogs_of_every_kind_are_read(tmp_path: Path, encoding: str) -> None:
    for name, raw in (
        ("bash", gzip.compress(CHANGELOG.encode(encoding))),
        ("damaged", gzip.compress(b"x" * 1000)[:20]),
        ("empty", gzip.compress(b"")),
        ("not-gzip", b"plain"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "changelog.Debian.gz").write_bytes(raw)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    entries = history.changelogs(tmp_path)
    assert [(each.topic, each.sender) for each in entries] == [
        ("bash", "unknown"),
        ("bash", "nameless@example.org"),
        ("bash", "all / amd64 / i386 Build Daemon (x86-01)"),
    ]
    assert "Thanks to Jörg." in entries[1].content
    assert len({each.key for each in entries}) == 3
