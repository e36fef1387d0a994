"""The hub's tables: its identity, its messages, and the search index."""

import shlex
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from appliance.checks.check import COPY, Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.plans import Plan, change, rebuild
from appliance.checks.rows import RowRule, find_rows
from appliance.checks.step import Step, Touches
from appliance.hub.foreign_schema import search_ready
from appliance.hub.repairs import FTS, has_fts5
from appliance.kernel import meta


def _identity(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("hub"):
        db_id = meta.read(connection, "db_id")
        if not db_id:
            yield NO_ID.finding(
                "hub", "the table meta has no db_id, so the database can't be identified"
            )
        server = context.server()
        if server is not None and context.lock().held and db_id and server.db_id != db_id:
            yield OTHER_DATABASE.finding(
                "hub", "the running hub serves another database than this workspace's"
            )


def _search(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("hub"):
        if meta.read(connection, "x_schema") is not None and not search_ready(connection):
            yield NO_INDEX.finding(
                "hub",
                "no full-text index: SQLite lacks FTS5, or the index was removed;"
                " searches scan all messages",
            )


def _search_in_step(context: Context) -> Iterator[Finding]:
    """Check a copy, because FTS5's integrity check is a write statement."""
    for _, connection in context.opened("hub"):
        if not search_ready(connection):
            continue
        with tempfile.TemporaryDirectory(prefix="agentlip-doctor-") as folder:
            path = Path(folder) / "copy.sqlite3"
            with closing(sqlite3.connect(path, isolation_level=None)) as copy:
                connection.backup(copy)
                yield from _compare(copy)


def _compare(copy: sqlite3.Connection) -> Iterator[Finding]:
    try:
        # Messages that the hub hasn't indexed yet are indexed in the copy first.
        copy.execute(
            "INSERT INTO messages_fts(rowid, content_raw) SELECT rowid, content_raw"
            " FROM messages WHERE rowid > (SELECT indexed FROM x_fts)"
        )
        copy.execute("INSERT INTO messages_fts(messages_fts, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        yield STALE.finding("hub", "the full-text index doesn't match the messages")


def _index_again(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    with suppress(sqlite3.Error):
        if has_fts5(context.open("hub")):
            yield rebuild(context, findings[0], FTS, "hub")


def change_messages(action: str, message: str) -> Plan:
    """Return the plan for findings whose subjects are `message <id>`."""

    def plan(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
        for finding in findings:
            kind, _, message_id = finding.subject.partition(" ")
            if kind == "message":
                yield change(
                    context,
                    finding,
                    action,
                    message.format(shlex.quote(message_id)),
                    "hub",
                    Touches.DATA,
                    {"message": message_id},
                )

    return plan


NO_ID = Problem("no-id", Severity.ERROR, hint=COPY)
OTHER_DATABASE = Problem("other-database", Severity.ERROR, hint="agentlipd restart")
NO_INDEX = Problem("no-index", Severity.INFO, hint="agentlipd restart")
STALE = Problem("stale", Severity.ERROR, hint="agentlip doctor repair rebuild fts --yes")
AHEAD = Problem("ahead", Severity.ERROR, hint="agentlip doctor --run events.deleted")
# The highest event id that was given out. A restore raises the number above all cursors.
_END = (
    "max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0),"
    " coalesce((SELECT max(event_id) FROM events), 0))"
)

_LEFT_OUT = "its cursor is {1}, but the log ends at {2}: events up to there will be left out"
CHECKS = (
    Check(
        name="hub.identity", inspects="the running hub serves this database", find=_identity,
        problems=(NO_ID, OTHER_DATABASE),
    ),
    Check(
        name="hub.search", inspects="the search index exists", find=_search, repair=_index_again,
        problems=(NO_INDEX,),
    ),
    Check(
        name="hub.search-in-step", inspects="the full-text index matches the messages",
        cost=Cost.EXPENSIVE, find=_search_in_step, repair=_index_again, problems=(STALE,),
    ),
    Check(
        name="hub.cursors",
        inspects="no webhook or plugin has passed the event log's end",
        find=find_rows(
            "hub",
            RowRule(
                AHEAD,
                f"SELECT id, cursor, last FROM x_webhooks, (SELECT {_END} AS last)"
                " WHERE cursor > last ORDER BY id",
                "webhook {0}",
                _LEFT_OUT,
                ("events", "x_webhooks"),
            ),
            RowRule(
                AHEAD,
                f"SELECT plugin, cursor, last FROM x_plugin_cursors, (SELECT {_END} AS last)"
                " WHERE cursor > last ORDER BY plugin",
                "plugin {0}",
                _LEFT_OUT,
                ("events", "x_plugin_cursors"),
            ),
        ),
        problems=(AHEAD,),
    ),
)  # fmt: skip
