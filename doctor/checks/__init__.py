"""CHECKS: all rows, in the order they are asked and shown.

First the machine, settings, stores and events, whose findings explain others; then one module for
each subsystem, by name. A new module in this folder needs no line here.
"""

from importlib import import_module
from pkgutil import iter_modules

from doctor.check import Check

FIRST = ("host", "settings", "store", "events")
MODULES = (
    *FIRST,
    *sorted(module.name for module in iter_modules(__path__) if module.name not in FIRST),
)
CHECKS: tuple[Check, ...] = tuple(
    check
    for name in MODULES
    for check in getattr(import_module(f"{__name__}.{name}"), "CHECKS", ())
)
