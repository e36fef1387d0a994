"""Checks of the worker bus, whose file other programs write too."""

import sqlite3
from collections.abc import Iterator

from appliance.busfile import jsonl, retention
from appliance.busfile.file import BusPaths
from appliance.busfile.heartbeats import DEAD_MS
from appliance.busfile.schema import REPLACED_KEY
from appliance.checks.check import Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.rows import RowRule, find_rows
from appliance.kernel import meta
from appliance.kernel.clock import DAY_MS, iso
from appliance.workspace.blobs import names_elsewhere

BEHIND_MAX = 10_000  # messages that the export lacks, if somebody keeps one
WAL_VERSIONS = b"\2\2"  # the header byte for a file with a log: https://sqlite.org/fileformat2.html
TABLES = ("task_claims", "heartbeats", "messages", "cursors")


def _file(context: Context) -> Iterator[Finding]:
    paths = BusPaths(context.datadir.workspace)
    if paths.last_file.exists() and not paths.database.exists():
        yield GONE.finding("bus.db", "it was deleted")
    for _, connection in context.opened("bus"):
        with paths.database.open("rb") as file:  # on a read-only disk SQLite calls it delete
            if file.read(20)[18:] != WAL_VERSIONS:
                yield OTHER_MODE.finding("bus.db", "its journal mode is not wal")
        replaced_ms = int(meta.read(connection, REPLACED_KEY) or 0)
        if context.clock.now_ms() - replaced_ms < retention.LIVE_MS:
            yield REPLACED.finding("bus.db", f"the file replaced another one at {iso(replaced_ms)}")


def _deleted(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("bus", "messages", "meta"):
        deleted = int(meta.value(connection, retention.DELETED_KEY) or 0)
        if deleted > 0:
            sentence = f"another program deleted {deleted:,} messages, which no retention did"
            yield DELETED.finding("messages", sentence)


def _export(context: Context) -> Iterator[Finding]:
    paths = BusPaths(context.datadir.workspace)
    for connection in context.with_tables("bus", "messages", "export_state"):
        lag = jsonl.lag(connection, paths.export)
        if lag is not None and lag > BEHIND_MAX:
            yield BEHIND.finding("bus.jsonl", f"it lacks {lag:,} messages")


def _blobs(context: Context) -> Iterator[Finding]:
    paths = BusPaths(context.datadir.workspace)
    for connection in context.with_tables("bus", "messages"):
        for ref in retention.missing_blobs(connection, paths.blobs):
            yield BLOB_MISSING.finding(ref, "a message refers to it, and the file is missing")
        try:
            kept = names_elsewhere(context.datadir, "bus")
        except sqlite3.Error:  # another check reports it
            return
        orphans = retention.orphan_blobs(connection, paths.blobs, context.clock.now_ms(), kept)
        if orphans:
            size = sum(path.stat().st_size for path in orphans)
            yield ORPHANS.finding("blobs", f"{len(orphans)} blobs, {size:,} bytes, have no message")


def _worktrees(context: Context) -> Iterator[Finding]:
    workspace = context.datadir.workspace
    for connection in context.with_tables("bus", "workers"):
        known = set()
        for task, state, worktree in connection.execute(
            "SELECT task_id, state, worktree FROM workers WHERE worktree IS NOT NULL"
        ):
            known.add(workspace / worktree)
            if state not in ("COMPLETED", "FAILED") and not (workspace / worktree).is_dir():
                sentence = f"it is {state}; {worktree} is missing"
                yield NO_WORKTREE.finding(f"task {task}", sentence, known={"task": task})
        folder = workspace / "worktrees"
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.is_dir() and path not in known:
                yield NO_WORKER.finding(f"worktrees/{path.name}", "no task has this worktree")


OTHER_MODE = Problem("other-mode", hint="agentlip bus claims")
REPLACED = Problem("replaced", hint="agentlip backup list")
COPY = "agentlip backup restore --latest --store bus --yes"
GONE = Problem("gone", Severity.ERROR, COPY)
DELETED = Problem("deleted", Severity.ERROR, COPY)
EXPIRED = Problem("expired", Severity.INFO, "agentlip bus claims")
DEAD_HOLDER = Problem("dead-holder", hint="agentlip bus release TASK_ID --agent CLAIMED_BY")
ABOVE_HEAD = Problem(
    "above-head",
    Severity.ERROR,
    "sqlite3 .worker-state/bus.db 'UPDATE cursors SET last_acked_seq = N WHERE agent_id = NAME'",
)
BEHIND = Problem("behind", hint="agentlip bus export")
BLOB_MISSING = Problem("missing", Severity.ERROR, "agentlip backup list")
ORPHANS = Problem("orphans", Severity.INFO, "agentlip bus archive --blobs")
NO_WORKTREE = Problem("no-worktree", hint="agentlip worker cancel TASK; agentlip worker spawn TASK")
NO_WORKER = Problem("no-worker", Severity.INFO, "git worktree list; git worktree remove PATH")

CHECKS = (
    Check(
        name="bus.mode",
        inspects="the worker bus file has a log, and was not deleted or replaced lately",
        find=_file,
        problems=(OTHER_MODE, REPLACED, GONE),
    ),
    Check(
        name="bus.deleted",
        inspects="no worker bus message was deleted except by retention",
        find=_deleted,
        problems=(DELETED,),
    ),
    Check(
        name="bus.claims",
        inspects="no worker bus claim expired long ago, and holders send heartbeats",
        find=find_rows(
            "bus",
            RowRule(
                EXPIRED,
                "SELECT task_id, claimed_by, lease_until_ms FROM task_claims"
                f" WHERE lease_until_ms < :now_ms - {DAY_MS} ORDER BY task_id",
                "claim {0}",
                "{1}'s lease ended at {2}",
                TABLES,
                times=(2,),
            ),
            RowRule(
                DEAD_HOLDER,
                "SELECT task_id, claimed_by, ts_ms FROM task_claims JOIN heartbeats"
                " ON agent_id = claimed_by WHERE lease_until_ms > :now_ms"
                f" AND ts_ms < :now_ms - {DEAD_MS} ORDER BY task_id",
                "claim {0}",
                "the last heartbeat from its holder {1} was at {2}",
                TABLES,
                times=(2,),
            ),
        ),
        problems=(EXPIRED, DEAD_HOLDER),
    ),
    Check(
        name="bus.cursors",
        inspects="no worker bus cursor is above the newest message",
        find=find_rows(
            "bus",
            RowRule(
                ABOVE_HEAD,
                "SELECT agent_id, last_acked_seq FROM cursors WHERE last_acked_seq >"
                " coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0)"
                " ORDER BY agent_id",
                "cursor of {0}",
                "it is at {1}, which no message has had",
                TABLES,
            ),
        ),
        problems=(ABOVE_HEAD,),
    ),
    Check(
        name="bus.export",
        inspects="the worker bus export, if enabled, is not far behind",
        find=_export,
        problems=(BEHIND,),
    ),
    Check(
        name="bus.worktrees", inspects="workers and worktrees belong together", find=_worktrees,
        problems=(NO_WORKTREE, NO_WORKER),
    ),
    Check(
        name="bus.blobs", inspects="every worker bus blob exists, and has a message",
        find=_blobs, cost=Cost.EXPENSIVE, problems=(BLOB_MISSING, ORPHANS),
    ),
)  # fmt: skip
