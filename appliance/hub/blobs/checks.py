"""Checks files that agents put: whether each is there, and has the content that its name states."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from appliance.busfile.blobs import path_of
from appliance.busfile.file import BusPaths
from appliance.checks.check import Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.hub.blobs.wire import PREFIX

NEWEST_MAX = 1000  # files that the cheap check looks for
_NEWEST = "SELECT hash, size FROM x_blobs WHERE removed_ms IS NULL ORDER BY created_ms DESC LIMIT ?"


def _newest(context: Context) -> Iterator[Finding]:
    yield from _find(context, NEWEST_MAX, read=False)


def _all(context: Context) -> Iterator[Finding]:
    yield from _find(context, -1, read=True)


def _find(context: Context, limit: int, *, read: bool) -> Iterator[Finding]:
    folder = BusPaths(context.datadir.workspace).blobs
    for connection in context.with_tables("hub", "x_blobs"):
        for digest, size in connection.execute(_NEWEST, (limit,)):
            path = path_of(folder, digest)
            try:
                has_size = path.stat().st_size == size
                if not has_size or (read and _hash(path) != digest):
                    yield DAMAGED.finding(PREFIX + digest, "the content does not match the hash")
            except OSError:
                yield MISSING.finding(PREFIX + digest, "the file is missing, or can't be read")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


PUT_AGAIN = "agentlip put FILE; without the file: agentlip backup list"
MISSING = Problem("missing", Severity.ERROR, PUT_AGAIN)
DAMAGED = Problem("damaged", Severity.ERROR, PUT_AGAIN)
CHECKS = (
    Check(
        name="blobs.files", inspects="the newest put files are there, with their size",
        find=_newest, problems=(MISSING, DAMAGED),
    ),
    Check(
        name="blobs.content", inspects="every put file's content fits the hash",
        find=_all, cost=Cost.EXPENSIVE, includes="blobs.files", problems=(MISSING, DAMAGED),
    ),
)  # fmt: skip
