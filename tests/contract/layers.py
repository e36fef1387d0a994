"""Which module may import which, by the role of its file. A new subsystem needs no line here.

A package with a `subsystem.py` is a subsystem. CONTRIBUTING shows the layers as `drawn` returns
them. Subsystems don't import each other: where two meet is a file in `integrations/`. EXCEPTIONS
has the few imports that are allowed in addition, with their reasons.

Inside a subsystem: subsystem, cli → resources, loops → service, checks → writes, listings →
queries → model, rows → wire, metrics → settings. Files named after a noun have no role; they must
not make a cycle.
"""

from collections.abc import Iterator
from fnmatch import fnmatch

import grimp

OF_PACKAGE = {
    "shared": 0, "kernel": 0, "workspace": 1, "mesh": 1, "network": 1, "child": 1, "busfile": 1,
    "audit.log": 1, "web": 2, "sdk": 3, "checks": 2, "operations": 5, "recovery": 4, "process": 12,
    "upgrade": 12, "integrations": 8, "doctor": 9, "monitoring": 9,
}  # fmt: skip
SUBSYSTEM = 5
OF_MODULE = {
    "build": 0,
    "commands": 0,
    "declared_paths": 0,
    "declared_roles": 0,
    "declared_scopes": 0,
    "syscalls": 0,
    "cli_streams": 4,
    "cli_support": 4,
    "feed_source": 4,
    "host": 4,
    "roles": 6,
    "settings": 6,
    "wsgi": 8,
    **dict.fromkeys(("built", "builders", "builders_work", "composition"), 10),
    "readiness": 10,
    "app": 11,
    **dict.fromkeys(("server", "reset"), 12),
    **dict.fromkeys(("cli", "cli_daemon", "cli_reset"), 13),
    "__main__": 14,
}
OF_ROLE = {
    "settings": 0, "wire": 1, "metrics": 1, "model": 2, "rows": 2, "queries": 3, "writes": 4,
    "listings": 4, "service": 5, "checks": 5, "resources": 6, "loops": 6, "cli": 7, "subsystem": 7,
}  # fmt: skip
EXCEPTIONS = (
    ("appliance.sdk.*", "appliance.*.wire"),  # clients speak the wire
    ("appliance.sdk.bridge", "appliance.mcp.protocol"),  # names and codes of MCP
    ("appliance.sdk.reader", "appliance.hub.*"),  # reads a hub's database as the hub does
    ("appliance.mcp.*", "appliance.hub.*"),  # its tools are the hub's verbs
    ("appliance.export.cli_target", "appliance.backup.*"),  # segments go where backups can go
    ("appliance.inbox.cli", "appliance.hub.entries.cli"),  # one command for both inboxes
    ("appliance.*.cli*", "doctor.*"),  # commands that say what the doctor finds
    ("appliance.*", "appliance"),  # the version
    ("doctor.*", "appliance"),
)


def top(module: str) -> str:
    """Return the package that has a layer: `hub` for `appliance.hub.wire`, or `audit.log`."""
    root, *rest = module.split(".")
    inner = ".".join(rest[:2])
    return root if root == "doctor" else inner if inner in OF_PACKAGE else "".join(rest[:1])


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
    for module, imported, reason in _wrong_imports(graph):
        if not any(fnmatch(module, a) and fnmatch(imported, b) for a, b in EXCEPTIONS):
            yield f"{module} imports {imported}: {reason}"


def unused_exceptions(graph: grimp.ImportGraph) -> list[tuple[str, str]]:
    wrong = [(module, imported) for module, imported, _ in _wrong_imports(graph)]
    return [
        (above, below)
        for above, below in EXCEPTIONS
        if not any(
            fnmatch(module, above) and fnmatch(imported, below) for module, imported in wrong
        )
    ]


def drawn() -> str:
    """Return the layers from top to bottom, with the packages and modules of each."""
    levels: dict[int, list[str]] = {SUBSYSTEM: ["subsystems"]}
    for name, level in (OF_PACKAGE | OF_MODULE).items():
        levels.setdefault(level, []).append(name)
    return "\n→ ".join(", ".join(sorted(levels[level])) for level in sorted(levels, reverse=True))


def _wrong_imports(graph: grimp.ImportGraph) -> Iterator[tuple[str, str, str]]:
    own = {name for name in graph.modules if name.split(".")[0] in ("appliance", "doctor")}
    parts = subsystems(own)
    for module in sorted(own - {"appliance"}):
        if layer(module, parts) is None:
            yield module, "nothing", "it has no layer"
            continue
        for imported in sorted(graph.find_modules_directly_imported_by(module) & own):
            if reason := _wrong(module, imported, parts):
                yield module, imported, reason


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
