"""The scopes that a token may be given: what each subsystem declares in its wire module.

Looked up by package and not from the running subsystems, so that tokens can be issued while the
appliance is stopped, and without the server's libraries.
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

import appliance
from appliance.kernel.scopes import Scopes


def declared_scopes() -> frozenset[str]:
    """`SCOPES.grantable` of all wire modules."""
    found: frozenset[str] = frozenset()
    for package in iter_modules(appliance.__path__, "appliance."):
        if package.ispkg and find_spec(f"{package.name}.wire") is not None:
            scopes = getattr(import_module(f"{package.name}.wire"), "SCOPES", Scopes())
            found |= scopes.grantable
    return found
