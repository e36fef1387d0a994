"""Advisories in the OSV format, compared with pinned versions; without a network."""

import json

import pytest

from ops import advisories
from ops.advisories import is_affected, main

EVENTS = [{"introduced": "1.0"}, {"fixed": "1.5"}, {"introduced": "2.0"}, {"last_affected": "2.2"}]


def record(name="Some.Package", ecosystem="PyPI", versions=(), events=EVENTS, **more):
    affected = {
        "package": {"ecosystem": ecosystem, "name": name},
        "ranges": [{"type": "ECOSYSTEM", "events": events}],
        "versions": list(versions),
    }
    return {"id": "PYSEC-1", "modified": "2026-01-02", "affected": [affected], **more}


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.9", False), ("1.0", True), ("1.4.9", True), ("1.5", False), ("1.10", False),
     ("2.0", True), ("2.2", True), ("2.2.1", False), ("1.5rc1", True)],
)  # fmt: skip
def test_ranges_are_compared_as_versions(version, expected):
    assert is_affected(record(), "some-package", version) is expected


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "a.txt").write_text("some-package==1.2\n")
    (tmp_path / "osv").mkdir()
    monkeypatch.setattr(advisories, "ROOT", tmp_path)
    return tmp_path / "osv"


def test_the_result_names_what_is_affected_and_how_old_it_is(folder, capsys):
    (folder / "a.json").write_text(json.dumps(record(summary="it leaks")))
    assert main([str(folder)]) == 1
    out = capsys.readouterr().out
    assert "some-package==1.2: PYSEC-1 it leaks" in out
    assert "1 pins, 1 records, the newest of 2026-01-02: 1 affected" in out


def test_withdrawn_records_are_skipped_and_empty_folder_fails(folder, capsys):
    assert main([str(folder)]) == 2
    (folder / "a.json").write_text(json.dumps(record(withdrawn="2026-01-03")))
    assert main([str(folder)]) == 2
    assert "nothing was compared" in capsys.readouterr().out
    (folder / "b.json").write_text(json.dumps(record(name="other")))
    assert main([str(folder)]) == 0
