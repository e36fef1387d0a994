"""CHECKS: all rows, in the order they are asked and shown. Nothing registers itself."""

from doctor.check import Check
from doctor.checks import events, host, hub, plugins, settings, store, tokens

CHECKS: tuple[Check, ...] = (
    *host.CHECKS,
    *settings.CHECKS,
    *store.CHECKS,
    *events.CHECKS,
    *hub.CHECKS,
    *plugins.CHECKS,
    *tokens.CHECKS,
)
