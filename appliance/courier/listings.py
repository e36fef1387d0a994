"""What a journal knows beside envelopes, read page by page at the start.

The first two columns of a row say where the next page begins.
"""

from typing import Any

from peewee import SQL, Tuple

from appliance.courier.model import Acked, Attempt, Latest, Paused
from appliance.kernel.model import given, statement
from appliance.kernel.reader import Reader

PAGE = 5_000
_AFTER = Tuple(given("first"), given("second"))
_NO_SLOT = SQL("0")

_ACKED = statement(
    Acked.select(Acked.stream, Acked.slot, Acked.place, Acked.id)
    .where(Tuple(Acked.stream, Acked.slot) > _AFTER)
    .order_by(Acked.stream, Acked.slot)
)
_TRIES = statement(
    Attempt.select(
        Attempt.number, Attempt.slot, Attempt.at_ms, Attempt.holder, Attempt.outcome, Attempt.error
    )
    .where(Tuple(Attempt.number, Attempt.slot) > _AFTER)
    .order_by(Attempt.number, Attempt.slot)
)
_PAUSED = statement(
    Paused.select(Paused.stream, _NO_SLOT, Paused.until_ms)
    .where(Paused.stream > given("first"))
    .order_by(Paused.stream)
)
_LATEST = statement(
    Latest.select(Latest.stream, _NO_SLOT, Latest.body, Latest.at_ms)
    .where(Latest.stream > given("first"))
    .order_by(Latest.stream)
)


def acked(reader: Reader, after: tuple[Any, Any]) -> list[Any]:
    return _page(reader, _ACKED, after)


def tries(reader: Reader, after: tuple[Any, Any]) -> list[Any]:
    return _page(reader, _TRIES, after)


def paused(reader: Reader, after: tuple[Any, Any]) -> list[Any]:
    return _page(reader, _PAUSED, after)


def latest(reader: Reader, after: tuple[Any, Any]) -> list[Any]:
    return _page(reader, _LATEST, after)


def _page(reader: Reader, sql: str, after: tuple[Any, Any]) -> list[Any]:
    return reader.rows(sql, {"first": after[0], "second": after[1]}, limit=PAGE)
