"""CHECKS: all checks, in the order in which they run and are listed.

The checks of the host, the settings, the stores and the events come first, because their findings
explain others. The other groups follow by name. A module in this folder, and `checks.py` or
`checks_….py` in a package of the appliance, is found by its name. How findings are repaired is in
`doctor/plans.py`.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules, walk_packages

import msgspec

import appliance
from appliance.checks.check import Check
from doctor.plans import PLANS

FIRST = ("host", "settings", "store", "events")


def _find_modules() -> Iterator[str]:
    for module in iter_modules(__path__, f"{__name__}."):
        yield module.name
    for module in walk_packages(appliance.__path__, f"{appliance.__name__}."):
        if not module.ispkg and module.name.rpartition(".")[2].startswith("checks"):
            yield module.name


def _place(check: Check) -> tuple[int, str]:
    return FIRST.index(check.group) if check.group in FIRST else len(FIRST), check.group


_DECLARED: list[Check] = [
    check for name in _find_modules() for check in getattr(import_module(name), "CHECKS", ())
]
CHECKS = tuple(
    msgspec.structs.replace(check, repair=PLANS.get(check.name, check.repair))
    for check in sorted(_DECLARED, key=_place)
)
