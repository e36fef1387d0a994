"""CHECKS: all checks, in the order in which they run and are listed.

Host, settings, stores and events come first, because their findings explain others. The modules
of the subsystems follow by name. A new module in this folder is found by itself. How findings
are repaired is in `doctor/plans.py`.
"""

from importlib import import_module
from pkgutil import iter_modules

import msgspec

from appliance.checks.check import Check
from doctor.plans import PLANS

FIRST = ("host", "settings", "store", "events")
MODULES = (
    *FIRST,
    *sorted(module.name for module in iter_modules(__path__) if module.name not in FIRST),
)
CHECKS: tuple[Check, ...] = tuple(
    msgspec.structs.replace(check, repair=PLANS.get(check.name, check.repair))
    for name in MODULES
    for check in getattr(import_module(f"{__name__}.{name}"), "CHECKS", ())
)
