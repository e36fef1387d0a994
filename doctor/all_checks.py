"""CHECKS: all checks, in the order in which they run and are listed.

The host, settings and store checks come first, because their findings explain others. The remaining
groups follow by name. A module in `doctor/checks`, and `checks.py` or `checks_….py` in an appliance
package, is found by name.

A check declares how to repair its findings: `doctor/plans.py` for `doctor/checks`, and a module's
`REPAIRS` for checks in a module that may not import what the repair needs.
"""

import msgspec

import appliance
from appliance.checks.check import Check
from appliance.checks.plans import Plan
from appliance.kernel.declaring_modules import import_named
from doctor import checks
from doctor.plans import PLANS

FIRST = ("host", "settings", "store")


def _place(check: Check) -> tuple[int, str]:
    return FIRST.index(check.group) if check.group in FIRST else len(FIRST), check.group


MODULES = import_named("", checks) + import_named("checks", appliance)
_DECLARED: list[Check] = [check for module in MODULES for check in getattr(module, "CHECKS", ())]
_REPAIRS: dict[str, Plan] = dict(PLANS)
for _module in MODULES:
    _REPAIRS |= getattr(_module, "REPAIRS", {})
CHECKS = tuple(
    msgspec.structs.replace(check, repair=_REPAIRS.get(check.name, check.repair))
    for check in sorted(_DECLARED, key=_place)
)
