"""Lists asks."""

from functools import cache
from typing import Any

from msgspec import json
from peewee import SQL

from appliance.hub.ask import wire
from appliance.hub.ask.queries import StoredAsk, make_ask
from appliance.hub.model import Ask, Message
from appliance.hub.rows import AskRow
from appliance.kernel.model import fields, given, statement
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

LAST = "~"  # sorts behind every id


def asks(
    reader: Reader, query: wire.AsksQuery, limit: int, name: str | None, only: frozenset[str] | None
) -> tuple[list[StoredAsk], bool]:
    """List asks, newest first, continuing after the id `after`. `name`: the caller's token. `only`:
    the channels that the caller may read; None: all."""
    values: dict[str, Any] = {"after": query.after or LAST, "rows": limit + 1}
    given_values = {
        "state": query.state,
        "asker": query.asker,
        "name": (name or "") if query.mine else None,
        "only": None if only is None else json.encode(sorted(only)).decode(),
    }
    values |= {key: value for key, value in given_values.items() if value is not None}
    return reader.page(
        _asks(tuple(sorted(values))),
        values,
        limit=limit,
        make=make_ask,
        size=lambda ask: ROW_BYTES + text_bytes(ask.row.text) + text_bytes(ask.row.answer),
    )


@cache
def _asks(filters: tuple[str, ...]) -> str:
    topic = Message.select(Message.topic_id).where(Message.id == Ask.message_id)
    query = Ask.select(*fields(Ask, AskRow._fields), topic).where(Ask.id < given("after"))
    if "state" in filters:
        query = query.where(Ask.state == given("state"))
    if "asker" in filters:
        query = query.where(Ask.asker == given("asker"))
    if "name" in filters:
        names = SQL("(SELECT value FROM json_each(may_answer_json))")
        query = query.where((Ask.may_answer_json == SQL("'[]'")) | SQL(":name").in_(names))
    if "only" in filters:
        query = query.where(Ask.channel_id.in_(SQL("(SELECT value FROM json_each(:only))")))
    return statement(query.order_by(Ask.id.desc()).limit(given("rows")))
