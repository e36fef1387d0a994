"""CHECKS: all rows, in the order they are asked and shown. Nothing registers itself."""

from doctor.check import Check
from doctor.checks import courier, events, host, hub, settings, store, tokens

CHECKS: tuple[Check, ...] = (
    *host.CHECKS,
    *settings.CHECKS,
    *store.CHECKS,
    *events.CHECKS,
    *hub.CHECKS,
    *courier.CHECKS,
    *tokens.CHECKS,
)
