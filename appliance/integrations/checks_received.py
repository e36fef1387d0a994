"""Compares inbox messages with the records in the own broker and outbox."""

from collections.abc import Iterator
from typing import Any

from appliance.checks.check import Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.fingerprints import find_altered
from appliance.inbox.wire import NETWORK

_RECEIVED = (
    "SELECT mesh, client_message_id, broker_message_id, number, destination_kind, destination_ref,"
    " body, reply_to_id, priority, meta FROM inbox WHERE mesh <> ? AND body IS NOT NULL"
)
_FINGERPRINTS = {
    "broker": "SELECT request_fingerprint FROM client_message_dedupe WHERE client_message_id = ?2"
    " AND broker_message_id = ?3 AND mesh_id = (SELECT id FROM mesh WHERE slug = ?1)",
    "outbox": "SELECT request_fingerprint FROM outbox WHERE client_message_id = ?2"
    " AND broker_message_id = ?3 AND mesh = ?1",
}


def _fingerprints(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("inbox", "inbox"):
        yield from find_altered(_with_fingerprints(context, connection), ALTERED, "inbox row {0}")


def _with_fingerprints(context: Context, inbox: Any) -> Iterator[tuple[Any, ...]]:
    known = list(context.opened(*_FINGERPRINTS))
    context.reading = "inbox"
    for mesh, sent_id, message_id, *row in inbox.execute(_RECEIVED, (NETWORK,)):
        for store, connection in known:
            values = (mesh, sent_id, message_id)
            if digest := connection.execute(_FINGERPRINTS[store], values).fetchone():
                number, *stored = row
                yield number, digest[0], *stored
                break


ALTERED = Problem("altered", Severity.ERROR)
CHECKS = (
    Check(
        name="inbox.fingerprints",
        inspects="received messages match this appliance's broker and outbox rows",
        cost=Cost.EXPENSIVE, find=_fingerprints, problems=(ALTERED,),
    ),
)  # fmt: skip
