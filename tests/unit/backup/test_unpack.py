"""Unpacking finds every changed byte, and never replaces a file."""

import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from appliance.backup import keys, stored
from appliance.backup.errors import BackupDamaged, BackupNotWritable, KeyRefused
from appliance.backup.unpack import check_hashes
from tests.support.real_backups import Backups
from tests.support.workspaces import Filled
from tests.unit.backup.conftest import AgeKey

DAMAGES = ("flipped", "flipped at the end", "shorter", "longer", "missing", "a link")


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    if how.startswith("flipped"):
        at = len(content) - 1 if how.endswith("end") else middle
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    elif how == "missing":
        path.unlink()
    elif how == "a link":
        path.unlink()
        path.symlink_to("/etc/hostname")
    else:
        path.write_bytes({"shorter": content[:-1], "longer": content + b"x", "empty": b""}[how])


@pytest.mark.parametrize("encrypted", [False, True])
def test_damage_of_any_file_is_reported(
    filled: Filled, key: AgeKey, tmp_path: Path, encrypted: bool
) -> None:
    backups = Backups(filled.path, recipients=(key.recipient,) if encrypted else ())
    name = backups.create().name
    whole = backups.backups.path(name)
    backups.unpack(name, tmp_path / "whole", key.file)
    names = sorted(path.name for path in whole.iterdir())
    assert len(names) > 8
    saved = shutil.copytree(whole, tmp_path / "saved")
    for number, (file, how) in enumerate(product(names, DAMAGES)):
        damage(whole / file, how)
        with pytest.raises(BackupDamaged) as raised:
            backups.unpack(name, tmp_path / f"{number}", key.file)
        assert file in raised.value.message
        with pytest.raises(BackupDamaged, match=file.replace(".", r"\.")):
            check_hashes(whole, backups.backups.read(name))
        (whole / file).unlink(missing_ok=True)
        shutil.copy2(saved / file, whole / file)
    backups.unpack(name, tmp_path / "again", key.file)


@pytest.mark.parametrize("encrypted", [False, True])
def test_every_bit_of_a_file_counts(filled: Filled, key: AgeKey, encrypted: bool) -> None:
    """Also bits that change nothing for zstd."""
    backups = Backups(filled.path, recipients=(key.recipient,) if encrypted else ())
    manifest = backups.create()
    path, identities = backups.backups.path(manifest.name), backups.identities(key.file)
    (file,) = (file for file in manifest.files if file.path == ".agentlip/token")
    secret_keys = keys.keys_of(manifest, identities)
    stored.read(path, file, stored.Nowhere(), secret_keys)
    content = (path / file.name).read_bytes()
    bits = range(0, 8, 7) if encrypted else range(8)
    for at, bit in product(range(len(content)), bits):
        changed = bytearray(content)
        changed[at] ^= 1 << bit
        (path / file.name).write_bytes(changed)
        with pytest.raises(BackupDamaged):
            stored.read(path, file, stored.Nowhere(), secret_keys)


def test_identity_file_is_read_as_age_writes_it(
    backups: Backups, key: AgeKey, tmp_path: Path
) -> None:
    identities = backups.identities(key.file)
    assert identities is not None
    assert len(identities) == 1
    assert "SECRET" not in repr(identities)
    assert backups.identities(None) is None
    wrong = tmp_path / "wrong"
    for text in ("", "# only a comment\n", "AGE-SECRET-KEY-1FOO\n", key.recipient):
        wrong.write_text(text)
        with pytest.raises(KeyRefused, match="identity file") as raised:
            backups.identities(wrong)
        assert "1FOO" not in raised.value.message
    with pytest.raises(KeyRefused, match="no such file"):
        backups.identities(tmp_path / "absent")


def test_existing_files_are_never_replaced(backups: Backups, tmp_path: Path) -> None:
    name = backups.create().name
    into = tmp_path / "into"
    (into / ".agentlip").mkdir(parents=True)
    (into / ".agentlip" / "token").write_text("mine")
    with pytest.raises(BackupNotWritable, match="token exists"):
        backups.unpack(name, into)
    assert (into / ".agentlip" / "token").read_text() == "mine"


OPEN = """
import sys, pyrage
from backports import zstd
key = pyrage.x25519.Identity.from_str(open(sys.argv[2]).read().split()[-1])
sealed = open(sys.argv[1], "rb").read()
sys.stdout.buffer.write(zstd.decompress(pyrage.decrypt(sealed, [key])))
"""


def test_backup_is_opened_without_this_program(filled: Filled, key: AgeKey, tmp_path: Path) -> None:
    """Two libraries of others are enough, as `age -d -i KEY FILE | zstd -d` is."""
    backups = Backups(filled.path, recipients=(key.recipient,))
    path = backups.backups.path(backups.create().name)
    for file, original in (("token", ".agentlip/token"), ("db.sqlite3", None)):
        done = subprocess.run(
            [sys.executable, "-I", "-c", OPEN, str(path / f"{file}.zst.age"), str(key.file)],
            capture_output=True, check=True, timeout=60, cwd=tmp_path,
        )  # fmt: skip
        if original:
            assert done.stdout == (filled.path / original).read_bytes()
        else:
            assert done.stdout.startswith(b"SQLite format 3\0")
