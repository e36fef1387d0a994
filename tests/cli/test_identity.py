"""`agentlip identity archive-cleanup`: what goes, and what stays."""

import json
from pathlib import Path

import pytest

from appliance.identity import keys
from appliance.identity.files import ARCHIVE, DAY_MS, KEYPAIR, IdentityFiles
from appliance.kernel.clock import SystemClock, iso
from appliance.workspace.datadir import DataDir
from tests.support.commands import agentlip

pytestmark = pytest.mark.slow

CLEANUP = ("identity", "archive-cleanup")


def entry(out_days: float, left_days: float) -> keys.ArchivedKeyPair:
    """A key rotated out so many days ago, with so many days of grace left."""
    now = SystemClock().now_ms()
    out, until = now - int(out_days * DAY_MS), now + int(left_days * DAY_MS)
    return keys.archived(keys.make(iso(out)), iso(out), iso(until))


YOUNG, OVER, LONG_OVER = entry(1, 6), entry(8, -1), entry(60, -50)


@pytest.fixture
def files(tmp_path: Path) -> IdentityFiles:
    agentlip("init", cwd=tmp_path)
    files = IdentityFiles(DataDir(tmp_path))
    files.write(KEYPAIR, keys.make(iso(SystemClock().now_ms())))
    files.write(ARCHIVE, keys.KeyArchive((LONG_OVER, OVER, YOUNG)))
    return files


def in_archive(files: IdentityFiles) -> list[str]:
    text = files.read(ARCHIVE)
    assert text is not None
    return [key.key_id for key in keys.read_archive(text).keys]


def ids(rows: list[dict[str, str]]) -> list[str]:
    return [row["key_id"] for row in rows]


def test_cleanup_needs_yes_and_dry_run_changes_nothing(
    files: IdentityFiles, tmp_path: Path
) -> None:
    before = files.read(ARCHIVE)
    refused = agentlip(*CLEANUP, "--json", cwd=tmp_path)
    assert refused.code == 1
    error = json.loads(refused.err)
    assert "2 archived keys" in error["error"]
    assert ids(error["details"]["found"]["removed"]) == [LONG_OVER.key_id, OVER.key_id]
    dry = agentlip(*CLEANUP, "--dry-run", "--yes", "--json", cwd=tmp_path)
    assert dry.json["dry_run"] is True
    assert ids(dry.json["removed"]) == [LONG_OVER.key_id, OVER.key_id]
    assert f"would remove {OVER.key_id}" in agentlip(*CLEANUP, "--dry-run", cwd=tmp_path).out
    assert files.read(ARCHIVE) == before


def test_cleanup_removes_only_keys_past_their_grace_period(
    files: IdentityFiles, tmp_path: Path
) -> None:
    first = agentlip(*CLEANUP, "--older-than", 30, "--yes", "--json", cwd=tmp_path)
    assert ids(first.json["removed"]) == [LONG_OVER.key_id]
    assert ids(first.json["kept"]) == [OVER.key_id, YOUNG.key_id]
    assert in_archive(files) == [OVER.key_id, YOUNG.key_id]
    second = agentlip(*CLEANUP, "--yes", "--json", cwd=tmp_path)
    assert second.json["dry_run"] is False
    assert ids(second.json["removed"]) == [OVER.key_id]
    assert in_archive(files) == [YOUNG.key_id]
    assert (files.folder / ARCHIVE).stat().st_mode & 0o077 == 0
    third = agentlip(*CLEANUP, cwd=tmp_path)
    assert third.code == 0, "nothing to remove, nothing to ask"
    assert f"kept {YOUNG.key_id} until" in third.out
    assert "privkey" not in first.out + second.out + third.out
