"""CHECKS: all checks, in the order in which they run and are listed.

Host, settings, stores and events come first, because their findings explain others. Those of the
subsystems follow by name. A module in this folder, and `checks.py` or `checks_….py` in a package of
the appliance, is found by its name. How findings are repaired is in `doctor/plans.py`.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules, walk_packages

import msgspec

import appliance
from appliance.checks.check import Check
from doctor.plans import PLANS

FIRST = ("host", "settings", "store", "events")


def _find_modules() -> Iterator[tuple[str, str]]:
    """Each module with checks, after the name of what it checks: `hub_events` of
    `appliance.hub.checks_events`."""
    for own in iter_modules(__path__, f"{__name__}."):
        yield own.name.rpartition(".")[2], own.name
    for module in walk_packages(appliance.__path__, f"{appliance.__name__}."):
        package, _, name = module.name.rpartition(".")
        if not module.ispkg and name.startswith("checks"):
            yield package.rpartition(".")[2] + name.removeprefix("checks"), module.name


_MODULES = dict(_find_modules())
MODULES = (*FIRST, *sorted(_MODULES.keys() - {*FIRST}))
CHECKS: tuple[Check, ...] = tuple(
    msgspec.structs.replace(check, repair=PLANS.get(check.name, check.repair))
    for name in MODULES
    for check in getattr(import_module(_MODULES[name]), "CHECKS", ())
)
