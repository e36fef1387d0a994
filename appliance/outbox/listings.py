"""The outbox's listings: sends by state, mesh, destination, and what a requeue takes up."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from peewee import SQL, NodeList, fn

from appliance.kernel.model import fields, given, literal, statement
from appliance.kernel.reader import Reader
from appliance.outbox.columns import Row
from appliance.outbox.model import Send
from appliance.outbox.queries import INDEX

T = TypeVar("T")

_BOUNDS = {  # what may be asked for besides the values of columns
    "after": Send.id > given("after"),
    "before": Send.id < given("before"),
    "kept": Send.payload_dropped_at.is_null(),
    "error_contains": fn.INSTR(Send.last_error, given("error_contains")) > SQL("0"),
    "enqueued_before": Send.enqueued_at <= given("enqueued_before"),
}


def sends(
    reader: Reader,
    made: Callable[[Row], T],
    size: Callable[[T], int],
    status: str | None,
    filters: Mapping[str, Any],
    after: str | None,
    before: str | None,
    limit: int,
    oldest_first: bool,
) -> tuple[list[T], bool]:
    """What `made` makes of rows whose columns have the values of `filters`, by id (ids rise as
    rows are made), and whether there are more."""
    bounds = {"after": after, "before": before}
    return reader.page(
        *_ready(status, filters, bounds, oldest_first, limit + 1),
        limit=limit,
        make=lambda row: made(Row(*row)),
        size=size,
    )


def requeuable(
    reader: Reader,
    status: str,
    filters: Mapping[str, Any],
    error_contains: str | None,
    enqueued_before: int | None,
    kept: bool,
    limit: int,
) -> list[Row]:
    """Sends that a requeue by filter takes up, oldest first; `kept`: with their payload."""
    bounds = {
        "kept": kept or None,
        "error_contains": error_contains,
        "enqueued_before": enqueued_before,
    }
    found = reader.rows(*_ready(status, filters, bounds, True, limit), limit=limit)
    return [Row(*row) for row in found]


def _ready(
    status: str | None,
    filters: Mapping[str, Any],
    bounds: Mapping[str, Any],
    oldest_first: bool,
    rows: int,
) -> tuple[str, dict[str, Any]]:
    """A statement and its values. What is None is not asked for."""
    asked = {name: value for name, value in bounds.items() if value is not None}
    sql = _statement(status, tuple(filters), tuple(asked), oldest_first)
    return sql, {**filters, **asked, "rows": rows}


@cache  # forms are few: states, filters and bounds are closed sets
def _statement(
    status: str | None, filters: tuple[str, ...], bounds: tuple[str, ...], oldest_first: bool
) -> str:
    conditions = [getattr(Send, column) == given(column) for column in filters]
    conditions += [_BOUNDS[bound] for bound in bounds]
    if status is not None:
        conditions.append(Send.status == literal(status))
    query = Send.select(*fields(Send, Row._fields))
    index = _index(status, filters)
    if index:
        query = query.from_(NodeList((Send, SQL(f"INDEXED BY {index}"))))
    if conditions:
        query = query.where(*conditions)
    query = query.order_by(Send.id if oldest_first else Send.id.desc())
    return statement(query.limit(given("rows")))


def _index(status: str | None, filters: tuple[str, ...]) -> str:
    """A destination has fewer sends than a state; but of dead and retired ones there are few."""
    if "destination_ref" in filters and status not in ("dead", "aborted"):
        return "outbox_destination"
    return INDEX.get(status or "", "")
