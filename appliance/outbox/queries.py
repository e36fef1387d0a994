"""Reads of the outbox. Each has a row limit."""

from collections.abc import Callable
from contextlib import closing
from typing import Any, Protocol, TypeVar

from appliance.kernel.page import take_page
from appliance.kernel.reader import Reader
from appliance.outbox.columns import COLUMNS, Row

T = TypeVar("T")

# The partial index of each state. It serves a literal only, so states are written out.
INDEX = {
    "pending": "outbox_waiting",
    "inflight": "outbox_inflight",
    "dead": "outbox_dead",
    "aborted": "outbox_aborted",
}


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
            f"SELECT count(*) FROM outbox INDEXED BY {index} WHERE status = " + repr(status)
        ).fetchone()[0]
        for status, index in INDEX.items()
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
