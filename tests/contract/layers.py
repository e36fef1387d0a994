"""Which module may import which, by the role of its file. A new subsystem needs no line here.

    __main__ → cli → process, upgrade → app → composition → doctor → integrations, wsgi → settings
    → subsystems (every package with a subsystem.py) → cli_support → sdk → web, checks
    → mesh, network → workspace → child → kernel, shared

Subsystems don't import each other: where two meet is a file in `integrations/`. EXCEPTIONS has the
few imports that are allowed in addition, with their reasons.

Inside a subsystem: subsystem, cli → resources, loops → service, checks → writes, listings →
queries → model, rows → wire, metrics → settings. Files named after a noun have no role; they must
not make a cycle.
"""

from collections.abc import Iterator
from fnmatch import fnmatch

import grimp

OF_PACKAGE = {
    "shared": 0,
    "kernel": 0,
    "workspace": 1,
    "mesh": 1,
    "network": 1,
    "child": 1,
    "busfile": 1,
    "auditlog": 1,
    "web": 2,
    "sdk": 3,
    "checks": 2,
    "recovery": 4,
    "process": 12,
    "upgrade": 12,
    "integrations": 8,
    "doctor": 9,
    "monitoring": 9,
}
SUBSYSTEM = 5
OF_MODULE = {
    "build": 0,
    "commands": 0,
    "declared_paths": 0,
    "declared_roles": 0,
    "cli_support": 4,
    "feed_source": 4,
    "host": 4,
    "roles": 6,
    "settings": 6,
    "wsgi": 8,
    **dict.fromkeys(("built", "builders", "composition"), 10),
    "readiness": 10,
    "app": 11,
    **dict.fromkeys(("server", "reset"), 12),
    **dict.fromkeys(("cli", "cli_daemon", "cli_reset"), 13),
    "__main__": 14,
}
OF_ROLE = {
    "settings": 0,
    "wire": 1,
    "metrics": 1,
    "model": 2,
    "rows": 2,
    "queries": 3,
    "writes": 4,
    "listings": 4,
    "service": 5,
    "checks": 5,
    "resources": 6,
    "loops": 6,
    "cli": 7,
    "subsystem": 7,
}
EXCEPTIONS = (
    ("appliance.sdk.*", "appliance.*.wire"),  # clients speak the wire
    ("appliance.sdk.bridge", "appliance.mcp.protocol"),  # names and codes of MCP
    ("appliance.sdk.reader", "appliance.hub.*"),  # reads a hub's database as the hub does
    ("appliance.hooks.*", "appliance.inbox.event"),  # hooks are called with events of the inbox
    ("appliance.hooks.*", "appliance.inbox.wire"),
    ("appliance.hooks.*", "appliance.inbox.model"),  # their runs are in the inbox's database
    ("appliance.hooks.*", "appliance.inbox.rows"),
    ("appliance.hooks.queries", "appliance.inbox.queries"),
    ("appliance.mcp.*", "appliance.hub.*"),  # its tools are the hub's verbs
    ("appliance.ask.*", "appliance.hub.*"),  # an ask is a row beside a message of the hub
    ("appliance.backup.cli*", "appliance.export.settings"),  # where the exports are
    ("appliance.export.cli_target", "appliance.backup.*"),  # segments go where backups can go
    ("appliance.*.cli*", "doctor.*"),  # commands that say what the doctor finds
    ("appliance.*", "appliance"),  # the version
    ("doctor.*", "appliance"),
)


def top(module: str) -> str:
    """`appliance.hub.wire` is in `hub`, all of the doctor in `doctor`."""
    root, _, rest = module.partition(".")
    return root if root == "doctor" else rest.partition(".")[0]


def subsystems(modules: frozenset[str] | set[str]) -> set[str]:
    return {
        module.split(".")[1]
        for module in modules
        if module.startswith("appliance.")
        and module.count(".") == 2
        and module.endswith(".subsystem")
        and top(module) != "kernel"
    }


def layer(module: str, of_subsystems: set[str]) -> int | None:
    name = top(module)
    if name in of_subsystems:
        return SUBSYSTEM
    return OF_PACKAGE.get(name, OF_MODULE.get(name))


def role(module: str) -> int | None:
    return OF_ROLE.get(module.rpartition(".")[2])


def offences(graph: grimp.ImportGraph) -> Iterator[str]:
    """Every module without a layer, and every direct import that goes up or aside."""
    own = {name for name in graph.modules if name.split(".")[0] in ("appliance", "doctor")}
    parts = subsystems(own)
    for module in sorted(own - {"appliance"}):
        if layer(module, parts) is None:
            yield f"{module} has no layer"
            continue
        for imported in sorted(graph.find_modules_directly_imported_by(module) & own):
            if any(fnmatch(module, a) and fnmatch(imported, b) for a, b in EXCEPTIONS):
                continue
            if reason := _wrong(module, imported, parts):
                yield f"{module} imports {imported}: {reason}"


def _wrong(module: str, imported: str, parts: set[str]) -> str | None:
    above, below = layer(module, parts), layer(imported, parts)
    if below is None or above is None:
        return "it has no layer"
    if below > above:
        return "that is a layer above"
    if top(module) != top(imported):
        return "subsystems meet in integrations/" if above == below == SUBSYSTEM else None
    if module.rpartition(".")[0] != imported.rpartition(".")[0]:
        return None
    here, there = role(module), role(imported)
    if here is not None and there is not None and there >= here and above == SUBSYSTEM:
        return "its role is not below"
    return None
