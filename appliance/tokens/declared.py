"""The scopes that tokens can have: those that subsystems declare in their wire modules.

They are looked up in packages, not in running subsystems, so that tokens can be issued while the
appliance is stopped, and without the server's libraries.
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

import appliance
from appliance.kernel.scopes import Scopes


def declared_scopes() -> frozenset[str]:
    """The union of `SCOPES.grantable` of all wire modules."""
    grantable: frozenset[str] = frozenset()
    for package in iter_modules(appliance.__path__, f"{appliance.__name__}."):
        if package.ispkg and find_spec(f"{package.name}.wire") is not None:
            scopes = getattr(import_module(f"{package.name}.wire"), "SCOPES", Scopes())
            grantable |= scopes.grantable
    return grantable
