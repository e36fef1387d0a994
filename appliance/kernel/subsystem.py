"""What every subsystem has, and all that the composition root knows of one.

`app.py` builds a tuple of them and iterates over it. Stores, checkpointers, routes, sockets,
grantable scopes, readiness and roles come from that tuple; nothing of them is listed elsewhere.

    built ─ start ─▶ running ─ drain ─▶ waiting clients are answered ─ loops stop ─ close ─▶ closed
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from appliance.kernel.loop import Loop
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.scopes import Scopes
from appliance.kernel.store import Store


class Subsystem(Protocol):
    """`name` is that of its package and of its role.

    needs  stores that it can't work without: while one of them is damaged, its loops don't
           run and its routes and sockets answer with the reason
    """

    name: str
    stores: Sequence[Store] = ()
    loops: Sequence[Loop] = ()
    scopes: Scopes = Scopes()
    needs: frozenset[str] = frozenset()

    def routes(self) -> Sequence[Route]:
        return ()

    def sockets(self) -> Sequence[SocketRoute]:
        return ()

    def facts(self) -> Mapping[str, float]:
        """Numbers for the doctor, by names that begin with that of the subsystem."""
        return {}

    def start(self) -> None:
        """The port is bound and loops run."""
        return

    def drain(self) -> None:
        """Answer now whoever waits: the server is stopping."""
        return

    def close(self, timeout_seconds: float) -> bool:
        """After the loops: finish or give up what is under way, then close the stores. False when
        time ran out."""
        return close_stores(self.stores, timeout_seconds)


def close_stores(stores: Sequence[Store], timeout_seconds: float) -> bool:
    """Every one of them, also after one that did not close in time."""
    closed = [store.close(timeout_seconds) for store in stores]
    return all(closed)
