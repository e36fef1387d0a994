"""The hub's own tables: who it is, where its messages stand, and the index for searching."""

import shlex
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from appliance.kernel.adopt import meta, search_ready
from doctor.check import Check, Context, Cost, Finding, Severity


def _identity(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("hub"):
        db_id = meta(connection, "db_id")
        if not db_id:
            yield Finding(Severity.ERROR, "hub", "meta has no db_id, so nobody knows which it is")
        server = context.server()
        if server is not None and context.lock().held and db_id and server.db_id != db_id:
            yield Finding(
                Severity.ERROR,
                "hub",
                "the hub that runs serves another database than the one that lies here",
                "agentlipd restart",
            )


def _channels(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("hub"):
        rows = connection.execute(
            "SELECT m.id FROM messages AS m JOIN topics AS t ON t.id = m.topic_id"
            " WHERE m.channel_id <> t.channel_id"
        ).fetchmany(context.settings.findings_max + 1)
        for (message_id,) in rows:
            yield Finding(
                Severity.ERROR,
                f"message {message_id}",
                "its channel is another than its topic's",
                "compare with a snapshot in .agentlip/backups",
            )


def _search(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("hub"):
        if meta(connection, "x_schema") is not None and not search_ready(connection):
            yield Finding(
                Severity.INFO,
                "hub",
                "no full-text index: this SQLite has no FTS5, or the index was taken away;"
                " searching reads through the messages",
                "agentlipd restart",
            )


def _search_in_step(context: Context) -> Iterator[Finding]:
    """FTS5 checks itself only by a statement that counts as writing; so a copy is checked."""
    for _, connection in context.opened("hub"):
        if not search_ready(connection):
            continue
        with tempfile.TemporaryDirectory(prefix="agentlip-doctor-") as folder:
            path = Path(folder) / "copy.sqlite3"
            with closing(sqlite3.connect(path, isolation_level=None)) as copy:
                connection.backup(copy)
                yield from _compare(copy, context.datadir.database("hub"))


def _compare(copy: sqlite3.Connection, database: Path) -> Iterator[Finding]:
    try:
        # What the hub has not taken in yet is no fault; taken in here, all must agree.
        copy.execute(
            "INSERT INTO messages_fts(rowid, content_raw) SELECT rowid, content_raw"
            " FROM messages WHERE rowid > (SELECT indexed FROM x_fts)"
        )
        copy.execute("INSERT INTO messages_fts(messages_fts, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        yield Finding(
            Severity.ERROR,
            "hub",
            "the full-text index and the messages say different things; it is derived, and made"
            " anew when its part of the schema is missing",
            f"agentlipd down; sqlite3 {shlex.quote(str(database))} 'DROP TABLE x_fts';"
            " agentlipd up",
        )


CHECKS = (
    Check(name="hub.identity", inspects="the hub that runs serves this database", find=_identity),
    Check(name="hub.search", inspects="searching has its index", find=_search),
    Check(
        name="hub.channels",
        inspects="every message is in its topic's channel",
        cost=Cost.EXPENSIVE,
        find=_channels,
    ),
    Check(
        name="hub.search-in-step",
        inspects="the full-text index agrees with the messages",
        cost=Cost.EXPENSIVE,
        find=_search_in_step,
    ),
)
