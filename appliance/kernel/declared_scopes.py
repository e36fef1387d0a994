"""The scopes that tokens can have: those that subsystems declare in their wire modules.

They are looked up in packages, not in running subsystems, so that tokens can be issued while the
appliance is stopped, and without the server's libraries.
"""

from importlib import import_module
from pkgutil import walk_packages

import appliance
from appliance.kernel.scopes import Scopes, join


def declared_scopes() -> frozenset[str]:
    """Return the union of `SCOPES.grantable` in all wire modules."""
    walked = walk_packages(appliance.__path__, f"{appliance.__name__}.")
    modules = [import_module(name) for _, name, _ in walked if name.endswith(".wire")]
    return join(getattr(module, "SCOPES", Scopes()) for module in modules).grantable
