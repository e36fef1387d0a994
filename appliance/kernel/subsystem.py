"""Defines the protocol through which the composition root uses a subsystem.

`composition.py` builds a tuple of subsystems. Stores, checkpointers, routes, sockets, grantable
scopes and readiness are derived from that tuple and listed nowhere else.

    built ─ start ─▶ running ─ drain ─▶ waiting clients are answered ─ loops stop ─ close ─▶ closed
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from appliance.kernel.loop import Loop
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.scopes import Scopes
from appliance.kernel.store import Store
from appliance.kernel.tool import Tool


class Role(NamedTuple):
    """A role that [roles] can switch off. `needs`: roles without which this one is off too, which
    need no roles. `is_on`: the default."""

    about: str
    needs: tuple[str, ...] = ()
    is_on: bool = True


class Subsystem(Protocol):
    """A subsystem, built from `(host, needs)`: the process, and a struct with other subsystems'
    parts.

    name   its role's name, which is also its package's or its file's in `operations`

    role, sections  what it has in [roles], and its settings sections, by name. `just settings`
           lists both, so that they can be read without the server, and its routes' and sockets'
           paths, which are refused with the reason while its role is off

    needed_stores  it can't work without them. While one is damaged, its loops don't run, and its
           routes and sockets respond with the reason

    facts_help  the metric help for each fact, by name; `*`: a label, which the first part names.
           Facts that are missing here are no metrics
    """

    name: str
    role: Role | None = None
    sections: Mapping[str, type[msgspec.Struct]] = {}
    stores: Sequence[Store] = ()
    loops: Sequence[Loop] = ()
    scopes: Scopes = Scopes()
    needed_stores: frozenset[str] = frozenset()
    facts_help: Mapping[str, str] = {}

    def routes(self) -> Sequence[Route]:
        return ()

    def sockets(self) -> Sequence[SocketRoute]:
        return ()

    def tools(self) -> Sequence[Tool]:
        """Return tools for agents, at `/mcp`. A token sees the tools that its scopes allow."""
        return ()

    def facts(self) -> Mapping[str, float]:
        """Return numbers for the doctor, by names that begin with the subsystem's name."""
        return {}

    def start(self) -> None:
        """Start; called when the port is bound and the loops run."""
        return

    def drain(self) -> None:
        """End all long waits now, because the server is stopping."""
        return

    def close(self, timeout_seconds: float) -> bool:
        """Finish or abandon work, then close the stores; called after the loops stopped. Return
        False when time ran out."""
        closed = [store.close(timeout_seconds) for store in self.stores]
        return all(closed)
