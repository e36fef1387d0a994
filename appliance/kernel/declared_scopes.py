"""The scopes that tokens can have, declared in the subsystems' wire modules.

Scopes are looked up in packages, not in running subsystems, so that tokens can be issued while the
appliance is stopped, and without the server's libraries.
"""

import appliance
from appliance.kernel.declaring_modules import import_named
from appliance.kernel.scopes import Scopes, join


def declared_scopes() -> frozenset[str]:
    """Return every wire module's `SCOPES.grantable`, joined."""
    modules = import_named("wire", appliance)
    return join(getattr(module, "SCOPES", Scopes()) for module in modules).grantable
