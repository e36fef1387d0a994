"""CHECKS: all rows, in the order they are asked and shown. Nothing registers itself."""

from doctor.check import Check
from doctor.checks import (
    broker,
    courier,
    events,
    host,
    hub,
    identity,
    jobs,
    outbox,
    plugins,
    settings,
    store,
    tokens,
)

CHECKS: tuple[Check, ...] = (
    *host.CHECKS,
    *settings.CHECKS,
    *store.CHECKS,
    *events.CHECKS,
    *hub.CHECKS,
    *jobs.CHECKS,
    *plugins.CHECKS,
    *courier.CHECKS,
    *tokens.CHECKS,
    *identity.CHECKS,
    *broker.CHECKS,
    *outbox.CHECKS,
)
