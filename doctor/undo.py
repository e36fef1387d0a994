"""UNDO: the SQL that undoes a step, for steps that change only what is derived from other data.

A repair writes it before the step, into some kilobytes, where a copy of the store may need hundreds
of megabytes. It has the statements and rows that the step replaces. The content of indexes is built
from rows again. It does no harm if the step was never applied.
"""

import re
import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing

from appliance.hub.foreign_schema import FOREIGN_TRIGGER, SEARCH_TRIGGERS
from appliance.kernel import meta
from appliance.kernel.datadir import DataDir
from doctor import schema_model, store_actions
from doctor.context import Context, open_read_only
from doctor.schema_model import SchemaObject
from doctor.step import Step

Arguments = Mapping[str, str]
_TRIGGERS = (*SEARCH_TRIGGERS, FOREIGN_TRIGGER)
_TABLES = ("messages_fts", "x_fts", "x_cjk_messages", "x_cjk_changed", "x_cjk")
_OF_MESSAGES = re.compile(r"[(,]content=(['\"]?)messages\1[,)]")
_UNSCOPED = f"SELECT event_id FROM events WHERE {store_actions.UNSCOPED} ORDER BY event_id"
_RECORDS = (
    "SELECT 'INSERT INTO x_migrations (number, name, sha256, applied_ms) VALUES ('"
    " || quote(number) || ', ' || quote(name) || ', ' || quote(sha256) || ', '"
    " || quote(applied_ms) || ');' FROM x_migrations WHERE name = ?"
)
_FORGET = "SELECT 'DELETE FROM x_migrations WHERE name = ' || quote(?) || ';'"
_INDEXED = "SELECT 'INSERT INTO x_fts VALUES (1, ' || quote(indexed) || ');' FROM x_fts"


def is_possible(context: Context, action: str, store: str) -> bool:
    """Whether SQL can undo the action on this store. Otherwise the store has to be copied: another
    program's full-text index may have texts of its own. Raises sqlite3.Error."""
    if action == "rebuild-fts":
        there = schema_model.actual(context.open(store)).get("messages_fts")
        return there is None or bool(_OF_MESSAGES.search(schema_model.normal(there.sql)))
    return action in UNDO


def script(datadir: DataDir, step: Step) -> str | None:
    """The SQL that undoes a step, as one transaction; None for a step whose files are copied, and
    for one that changes no store. Raises sqlite3.Error if the store can't be read."""
    undo = UNDO.get(step.action)
    if undo is None or step.saves:
        return None
    database = datadir.database(step.arguments["store"])
    with closing(open_read_only(database)) as connection:
        connection.execute("BEGIN")
        lines = list(undo(connection, step.arguments))
    return "\n".join(
        (
            f"-- Undoes this step: {' '.join(step.message.split())}",
            f"-- agentlipd down; sqlite3 -bail {shlex.quote(str(database))} <FILE; agentlipd up",
            "BEGIN IMMEDIATE;",
            *lines,
            "COMMIT;",
            "",
        )
    )


def _reindex(_connection: sqlite3.Connection, _arguments: Arguments) -> Iterator[str]:
    yield "-- The indexes contain what the rows say, before the step and after it."


def _recreate_object(connection: sqlite3.Connection, arguments: Arguments) -> Iterator[str]:
    name = arguments["object"]
    wanted = schema_model.expected(connection, arguments["store"]).get(name)
    there = schema_model.actual(connection).get(name)
    if wanted is not None and (there is None or there.kind == wanted.kind):
        yield _drop(wanted.kind, name)
        yield from _create([there])


def _rebuild_fts(connection: sqlite3.Connection, arguments: Arguments) -> Iterator[str]:
    there = schema_model.actual(connection)
    yield from (_drop("trigger", name) for name in _TRIGGERS)
    yield from (_drop("table", name) for name in _TABLES)
    yield from _create(map(there.get, _TABLES))
    if "messages_fts" in there:
        yield "INSERT INTO messages_fts(messages_fts) VALUES ('rebuild');"
    if "x_fts" in there:
        yield from (line for (line,) in connection.execute(_INDEXED))
    if "x_fts" in there and "messages_fts" in there:
        yield "UPDATE x_fts SET indexed = (SELECT coalesce(max(rowid), 0) FROM messages);"
    if "x_cjk" in there:
        yield "INSERT INTO x_cjk VALUES (1, 0);"
    yield from _create(map(there.get, _TRIGGERS))
    if meta.exists(connection, "x_migrations"):
        for migration in store_actions.optional_steps(arguments["store"]):
            for statement in (_FORGET, _RECORDS):
                yield from (line for (line,) in connection.execute(statement, (migration.name,)))


def _fill_event_scopes(connection: sqlite3.Connection, _arguments: Arguments) -> Iterator[str]:
    trigger = schema_model.actual(connection).get(store_actions.IMMUTABLE)
    yield _drop("trigger", store_actions.IMMUTABLE)
    for first, last in _ranges(number for (number,) in connection.execute(_UNSCOPED)):
        numbers = f"{first} AND {last}"
        yield (
            "UPDATE events SET scope_channel_id = NULL, scope_topic_id = NULL,"
            f" scope_topic_id2 = NULL WHERE event_id BETWEEN {numbers};"
        )
    yield from _create([trigger])


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of each run of increasing numbers without a gap."""
    first = last = None
    for number in numbers:
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = number
    if first is not None and last is not None:
        yield first, last


def _drop(kind: str, name: str) -> str:
    source = f'{kind.upper()} IF EXISTS "{name}"'
    return f"DROP {source};"


def _create(objects: Iterable[SchemaObject | None]) -> Iterator[str]:
    """The statements of those that exist."""
    for each in objects:
        if each is not None:
            commented = "--" in each.sql.rpartition("\n")[2]
            yield each.sql + ("\n;" if commented else ";")


UNDO: dict[str, Callable[[sqlite3.Connection, Arguments], Iterator[str]]] = {
    "reindex": _reindex,
    "recreate-object": _recreate_object,
    "rebuild-fts": _rebuild_fts,
    "fill-event-scopes": _fill_event_scopes,
}
"""By the name of the action."""
