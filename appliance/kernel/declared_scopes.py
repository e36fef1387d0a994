"""The scopes that tokens can have: those that subsystems declare in their wire modules.

They are looked up in packages, not in running subsystems, so that tokens can be issued while the
appliance is stopped, and without the server's libraries.
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

import appliance
from appliance.kernel.scopes import Scopes, join


def declared_scopes() -> frozenset[str]:
    """The union of `SCOPES.grantable` of all wire modules."""
    packages = iter_modules(appliance.__path__, f"{appliance.__name__}.")
    names = [f"{package.name}.wire" for package in packages if package.ispkg]
    modules = [import_module(name) for name in names if find_spec(name) is not None]
    return join(getattr(module, "SCOPES", Scopes()) for module in modules).grantable
