"""Reads the journal's tables page by page, at the start."""

from typing import Any, TypeVar

from peewee import Tuple

from appliance.courier.model import Acked, Attempt, Envelope, Latest, Paused
from appliance.courier.rows import AckedRow, AttemptRow, EnvelopeRow, LatestRow, PausedRow
from appliance.kernel.model import Table, fields, given, statement
from appliance.kernel.reader import Reader

Row = TypeVar("Row", EnvelopeRow, AckedRow, AttemptRow, LatestRow, PausedRow)
PAGE = 5_000
_FIRST = {"number": 0, "stream": "", "slot": -1}  # before each table's first key


def _after(table: type[Table], row: Any) -> str:
    """Return the condition for rows after a primary key, in key order."""
    key = table._meta.get_primary_keys()
    cursor = Tuple(*[given(field.name) for field in key])
    query = table.select(*fields(table, row._fields)).where(Tuple(*key) > cursor)
    return statement(query.order_by(*key))


_ENVELOPES = _after(Envelope, EnvelopeRow)
_ACKED = _after(Acked, AckedRow)
_ATTEMPTS = _after(Attempt, AttemptRow)
_LATEST = _after(Latest, LatestRow)
_PAUSED = _after(Paused, PausedRow)
_STATEMENTS = {
    EnvelopeRow: _ENVELOPES,
    AckedRow: _ACKED,
    AttemptRow: _ATTEMPTS,
    LatestRow: _LATEST,
    PausedRow: _PAUSED,
}


def page(reader: Reader, kind: type[Row], after: Row | None) -> list[Row]:
    """Return the next rows after that one; None: the first rows."""
    values = _FIRST if after is None else after._asdict()
    return [kind(*row) for row in reader.rows(_STATEMENTS[kind], values, limit=PAGE)]
