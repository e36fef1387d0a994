"""Reads of the outbox. Each has a row limit."""

from collections.abc import Callable
from contextlib import closing
from typing import Any, Protocol, TypeVar

from appliance.kernel.page import take_page
from appliance.kernel.reader import Reader
from appliance.outbox.columns import COLUMNS, Row

T = TypeVar("T")

# Written out, for a partial index is only used for a value that stands in the statement.
_HAS = {
    state: f"status = '{state}'" for state in ("pending", "inflight", "done", "dead", "aborted")
}
_INDEX = {
    "pending": "INDEXED BY outbox_waiting",
    "inflight": "INDEXED BY outbox_inflight",
    "dead": "INDEXED BY outbox_dead",
    "aborted": "INDEXED BY outbox_aborted",
}


_BY_DESTINATION = "INDEXED BY outbox_destination"


def _index(status: str | None, filters: dict[str, Any]) -> str:
    """A destination has fewer sends than a state; but of dead and retired ones there are few."""
    if "destination_ref" in filters and status not in ("dead", "aborted"):
        return _BY_DESTINATION
    return _INDEX.get(status or "", "")


class Executor(Protocol):
    """A Reader, or the writer's Tx."""

    @property
    def execute(self) -> Any: ...


def find(reader: Executor, any_id: str) -> Row | None:
    """A send by the id of its row or the client's."""
    for column in ("id", "client_message_id"):
        row = reader.execute(
            f"SELECT {COLUMNS} FROM outbox WHERE {column} = ?", (any_id,)
        ).fetchone()
        if row is not None:
            return Row(*row)
    return None


# The rest of a chain, oldest first. UNION and not UNION ALL: it ends also where rows of a damaged
# file name each other in a circle.
_FOLLOWING = (
    "WITH RECURSIVE following (id) AS (VALUES (?) UNION SELECT one.superseded_by"
    " FROM following JOIN outbox AS one ON one.id = following.id"
    " WHERE one.superseded_by IS NOT NULL)"
)
_LEADING = (
    "WITH RECURSIVE leading (id) AS (VALUES (?) UNION SELECT one.id"
    " FROM leading JOIN outbox AS one"
    " ON one.superseded_by IS NOT NULL AND one.superseded_by = leading.id)"
)


def chain(
    reader: Reader,
    row_id: str,
    after: str | None,
    made: Callable[[Row], T],
    size: Callable[[T], int],
    limit: int,
    bytes_max: int,
) -> tuple[list[T], bool]:
    """The requeues that led to a row, and those that followed, oldest first, behind `after`; and
    whether there are more."""
    start = after or _beginning(reader, row_id)
    columns = ", ".join(f"outbox.{name}" for name in Row._fields)
    found = reader.execute(
        f"{_FOLLOWING} SELECT {columns} FROM following CROSS JOIN outbox ON"
        " outbox.id = following.id WHERE outbox.id IS NOT ?",
        (start, after),
    )
    with closing(found):
        return take_page((made(Row(*row)) for row in found), limit, bytes_max, size)


def _beginning(reader: Reader, row_id: str) -> str:
    """Of the chain in which that row is."""
    found = reader.row(
        _LEADING + " SELECT id FROM leading WHERE NOT EXISTS"
        " (SELECT 1 FROM outbox WHERE superseded_by IS NOT NULL AND superseded_by = leading.id)",
        (row_id,),
    )
    return row_id if found is None else str(found[0])


def inspect(
    reader: Reader,
    any_id: str,
    after: str | None,
    made: Callable[[Row], T],
    size: Callable[[T], int],
    whole_bytes: Callable[[Row], int],
    limit: int,
) -> tuple[Row, list[T], bool] | None:
    """A send, and a page of its chain that fits beside it."""
    row = find(reader, any_id)
    if row is None:
        return None
    left = reader.limit.page_bytes_max - whole_bytes(row)
    return (row, *chain(reader, row.id, after, made, size, limit, left))


def page(
    reader: Reader,
    made: Callable[[Row], T],
    size: Callable[[T], int],
    status: str | None,
    filters: dict[str, Any],
    after: str | None,
    before: str | None,
    limit: int,
    oldest_first: bool,
) -> tuple[list[T], bool]:
    """What `made` makes of rows whose columns have the values of `filters`, by id (ids rise as
    rows are made), and whether there are more."""
    terms = ["1" if status is None else _HAS[status]]
    values: list[Any] = []
    for column, value in filters.items():
        terms.append(f"{column} = ?")
        values.append(value)
    if after is not None:
        terms.append("id > ?")
        values.append(after)
    if before is not None:
        terms.append("id < ?")
        values.append(before)
    order, where = "ASC" if oldest_first else "DESC", " AND ".join(terms)
    source = f"outbox {_index(status, filters)}"
    return reader.page(
        f"SELECT {COLUMNS} FROM {source} WHERE {where} ORDER BY id {order} LIMIT ?",
        (*values, limit + 1),
        limit=limit,
        make=lambda row: made(Row(*row)),
        size=size,
    )


def waiting(reader: Executor, route: str, ref: str, most: int) -> int:
    """Sends of one destination that have not ended, counted up to `most`."""
    found: int = reader.execute(
        "SELECT count(*) FROM (SELECT 1 FROM outbox INDEXED BY outbox_open"
        " WHERE status IN ('pending', 'inflight') AND route = ? AND destination_kind = 'queue'"
        " AND destination_ref = ? LIMIT ?)",
        (route, ref, most),
    ).fetchone()[0]
    return found


def last_id(reader: Executor) -> str | None:
    found: str | None = reader.execute("SELECT max(id) FROM outbox").fetchone()[0]
    return found


class Standing:
    """What the watch looks at: how many there are in which state, how old, how large."""

    __slots__ = ("bytes_used", "depth", "oldest_ms")

    def __init__(self, depth: dict[str, int], oldest_ms: int | None, bytes_used: int) -> None:
        self.depth = depth
        self.oldest_ms = oldest_ms
        self.bytes_used = bytes_used


def standing(reader: Executor) -> Standing:
    """All from small indexes: delivered sends are not counted."""
    execute = reader.execute
    depth = {
        status: execute(
            # Partial indexes serve a literal only.
            f"SELECT count(*) FROM outbox {selection} WHERE status = " + repr(status)
        ).fetchone()[0]
        for status, selection in _INDEX.items()
    }
    oldest = execute(
        "SELECT enqueued_at FROM outbox INDEXED BY outbox_waiting WHERE status = 'pending'"
        " ORDER BY id LIMIT 1"
    ).fetchone()
    oldest_ms = None if oldest is None else oldest[0]
    (pages,) = execute("PRAGMA page_count").fetchone()
    (free,) = execute("PRAGMA freelist_count").fetchone()
    (size,) = execute("PRAGMA page_size").fetchone()
    return Standing(depth, oldest_ms, (pages - free) * size)


def routes_due(reader: Executor, now_ms: int, limit: int) -> tuple[list[tuple[str, int]], bool]:
    """Routes whose first pending send is due, with that instant; and whether any send is pending.

    One step an index entry for each route.
    """
    found: list[tuple[str, int]] = []
    last = ""
    while len(found) < limit:
        row = reader.execute(
            "SELECT route, next_attempt_at FROM outbox WHERE status = 'pending' AND route > ?"
            " ORDER BY route, next_attempt_at LIMIT 1",
            (last,),
        ).fetchone()
        if row is None:
            break
        last = row[0]
        if row[1] <= now_ms:
            found.append(row)
    return found, last != ""


def requeuable(
    reader: Executor,
    status: str,
    filters: dict[str, Any],
    error_contains: str | None,
    enqueued_before: int | None,
    kept: bool,
    limit: int,
) -> list[Row]:
    """Sends that a requeue by filter takes up, oldest first; `kept`: with their payload."""
    terms = [_HAS[status]]
    values: list[Any] = []
    for column, value in filters.items():
        terms.append(f"{column} = ?")
        values.append(value)
    if kept:
        terms.append("payload_dropped_at IS NULL")
    if error_contains is not None:
        terms.append("instr(last_error, ?) > 0")
        values.append(error_contains)
    if enqueued_before is not None:
        terms.append("enqueued_at <= ?")
        values.append(enqueued_before)
    source, where = f"outbox {_index(status, filters)}", " AND ".join(terms)
    rows = reader.execute(
        f"SELECT {COLUMNS} FROM {source} WHERE {where} ORDER BY id LIMIT ?",
        (*values, limit),
    ).fetchmany(limit)
    return [Row(*row) for row in rows]
