"""Checks that the member key is the only copy, and belongs to this workspace."""

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from appliance.checks.check import NEWEST_IDS_MAX, Check, Finding, Problem
from appliance.checks.context import Context
from appliance.kernel.clock import iso, utc
from appliance.kernel.json_file import read_json
from appliance.mesh.instance import COPY, CopyNote

RECENT_MS = 600_000  # a refused copy tries again at least every few minutes
_FILE_BYTES_MAX = 256 * 1024
DIRECTORY, KEYPAIR, ARCHIVE = "identity", "keypair.json", "keypair-archive.json"
_KNOWN = (KEYPAIR, "keypair-next.json", ARCHIVE, "host_fingerprint.json")
OWN = (
    "SELECT sender_pubkey, received_at FROM (SELECT sender_pubkey, received_at, own FROM inbox"
    " ORDER BY number DESC LIMIT :newest) WHERE own = 1 LIMIT 1"
)


# The doctor also runs without the key libraries, and so reads the files itself.
class StoredKeyPair(msgspec.Struct, frozen=True):
    ed25519_pubkey: str
    ed25519_seed: str
    created_at: str


class StoredArchiveEntry(msgspec.Struct, frozen=True):
    ed25519_pubkey: str


class StoredKeyArchive(msgspec.Struct, frozen=True):
    keys: tuple[StoredArchiveEntry, ...] = ()


def _copied(context: Context) -> Iterator[Finding]:
    folder = context.datadir.dir / DIRECTORY
    keys = read_json(folder / KEYPAIR, StoredKeyPair, _FILE_BYTES_MAX)
    if keys is None:
        return
    yield from _second_files(context, keys)
    for connection in context.with_tables("inbox", "inbox"):
        yield from _other_workspace(connection, folder, keys)


def _elsewhere(context: Context) -> Iterator[Finding]:
    """Report the last minutes' notes, because a refused copy tries again all the time."""
    keys = read_json(context.datadir.dir / DIRECTORY / KEYPAIR, StoredKeyPair, _FILE_BYTES_MAX)
    for store in ("broker", "inbox"):
        for _, connection in context.opened(store):
            rows = connection.execute(
                "SELECT key, value FROM meta WHERE key GLOB ? ORDER BY key", (COPY + "*",)
            )
            for key, value in rows:
                note = msgspec.json.decode(value, type=CopyNote)
                is_old = note.at_ms < context.clock.now_ms() - RECENT_MS
                if is_old or (store == "inbox" and keys and note.pubkey != keys.ed25519_pubkey):
                    continue
                yield ELSEWHERE.finding(
                    f"mesh {key[len(COPY) :].partition(':')[0]}, member {note.pubkey[:16]}",
                    f"the member runs on {note.running_on}, and its copy on {note.refused}"
                    " is refused",
                )


def _second_files(context: Context, keys: StoredKeyPair) -> Iterator[Finding]:
    """Find copies that somebody made in the data directory, for example by hand before a change."""
    seed = keys.ed25519_seed.encode()
    folders = (context.datadir.dir, context.datadir.dir / DIRECTORY, context.datadir.backups)
    for folder in folders:
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            if folder.name == DIRECTORY and path.name in _KNOWN:
                continue
            if seed in _text(path):
                yield SECOND_FILE.finding(
                    str(path.relative_to(context.datadir.workspace)),
                    "the file copies the member key: its readers can send as this appliance",
                    f"rm {path}",
                )


def _other_workspace(
    connection: sqlite3.Connection, folder: Path, keys: StoredKeyPair
) -> Iterator[Finding]:
    """Report that another key signed our newest message, although this key existed."""
    row = connection.execute(OWN, {"newest": NEWEST_IDS_MAX}).fetchone()
    archive = read_json(folder / ARCHIVE, StoredKeyArchive, _FILE_BYTES_MAX) or StoredKeyArchive()
    known = {keys.ed25519_pubkey, *(key.ed25519_pubkey for key in archive.keys)}
    if row is None or row[0] in known:
        return
    try:
        made_ms = datetime.fromisoformat(utc(keys.created_at)).timestamp() * 1000
    except ValueError:
        return
    if made_ms < row[1]:  # a later key replaced the other one
        yield OTHER_WORKSPACE.finding(
            KEYPAIR,
            f"this workspace had another key at {iso(row[1])}: {row[0][:16]}, and this key is "
            "older; it was copied from another workspace",
        )


def _text(path: Path) -> bytes:
    """Return a small file's content; empty for a large or unreadable file."""
    try:
        if not path.is_file() or path.stat().st_size > _FILE_BYTES_MAX:
            return b""
        return path.read_bytes()
    except OSError:
        return b""


ELSEWHERE = Problem("elsewhere", hint="agentlipd down # on one of the two")
SECOND_FILE = Problem("second-file")
OTHER_WORKSPACE = Problem("other-workspace", hint="agentlip identity show")
CHECKS = (
    Check(
        name="identity.elsewhere",
        inspects="no member has a copy that runs on another machine or workspace",
        find=_elsewhere,
        problems=(ELSEWHERE,),
    ),
    Check(
        name="identity.copied",
        inspects="the member key exists once, and this workspace sent with that key",
        find=_copied,
        problems=(SECOND_FILE, OTHER_WORKSPACE),
    ),
)  # fmt: skip
