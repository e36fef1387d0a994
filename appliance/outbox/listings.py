"""Lists sends by status, mesh and destination, and the sends that a redrive selects."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from peewee import SQL, NodeList, fn

from appliance.kernel.model import fields, given, literal, statement
from appliance.kernel.reader import Reader
from appliance.outbox.model import Send
from appliance.outbox.queries import INDEX
from appliance.outbox.rows import SendRow

T = TypeVar("T")

_BOUNDS = {  # conditions besides equality with a column
    "after": Send.id > given("after"),
    "before": Send.id < given("before"),
    "kept": Send.payload_dropped_at.is_null(),
    "error_contains": fn.INSTR(Send.last_error, given("error_contains")) > SQL("0"),
    "enqueued_before": Send.enqueued_at <= given("enqueued_before"),
}


def sends(
    reader: Reader,
    make: Callable[[SendRow], T],
    size: Callable[[T], int],
    status: str | None,
    filters: Mapping[str, Any],
    after: str | None,
    before: str | None,
    limit: int,
    oldest_first: bool,
) -> tuple[list[T], bool]:
    """Return `make(row)` for the rows that match `filters`, ordered by id (the order of
    acceptance), and whether there are more."""
    bounds = {"after": after, "before": before}
    return reader.page(
        *_prepare(status, filters, bounds, oldest_first, limit + 1),
        limit=limit,
        make=lambda row: make(SendRow(*row)),
        size=size,
    )


def redrivable(
    reader: Reader,
    status: str,
    filters: Mapping[str, Any],
    error_contains: str | None,
    enqueued_before: int | None,
    with_payload: bool,
    limit: int,
) -> list[SendRow]:
    """Return sends that a redrive by filter selects, oldest first; `with_payload`: only with a
    payload."""
    bounds = {
        "kept": with_payload or None,
        "error_contains": error_contains,
        "enqueued_before": enqueued_before,
    }
    rows = reader.rows(*_prepare(status, filters, bounds, True, limit), limit=limit)
    return [SendRow(*row) for row in rows]


def _prepare(
    status: str | None,
    filters: Mapping[str, Any],
    bounds: Mapping[str, Any],
    oldest_first: bool,
    limit: int,
) -> tuple[str, dict[str, Any]]:
    """Return a statement and its values. A None bound is omitted."""
    given_bounds = {name: value for name, value in bounds.items() if value is not None}
    sql = _statement(status, tuple(filters), tuple(given_bounds), oldest_first)
    return sql, {**filters, **given_bounds, "rows": limit}


@cache  # few variants: statuses, filters and bounds are closed sets
def _statement(
    status: str | None, filters: tuple[str, ...], bounds: tuple[str, ...], oldest_first: bool
) -> str:
    conditions = [getattr(Send, column) == given(column) for column in filters]
    conditions += [_BOUNDS[bound] for bound in bounds]
    if status is not None:
        conditions.append(Send.status == literal(status))
    query = Send.select(*fields(Send, SendRow._fields))
    index = _index(status, filters)
    if index:
        query = query.from_(NodeList((Send, SQL(f"INDEXED BY {index}"))))
    if conditions:
        query = query.where(*conditions)
    query = query.order_by(Send.id if oldest_first else Send.id.desc())
    return statement(query.limit(given("rows")))


def _index(status: str | None, filters: tuple[str, ...]) -> str:
    """Return the index: by destination, except for `dead` and `aborted` sends, which are few."""
    if "destination_ref" in filters and status not in ("dead", "aborted"):
        return "outbox_destination"
    return INDEX.get(status or "", "")
