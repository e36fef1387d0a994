"""Notes as a part of the appliance."""

from collections.abc import Callable
from typing import Any

import msgspec
from appliance.toy import wire
from appliance.toy.loops import NoteCounter
from appliance.toy.resources import routes
from appliance.toy.service import Toy
from appliance.toy.settings import ToySettings

from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.store import Store
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writer import StoreSettings
from appliance.web.frame import text_frame
from appliance.web.socket import Socket
from appliance.workspace.datadir import DataDir

STORE = "toy"
NORMAL_CLOSURE = 1000


class ToySubsystem(Subsystem):
    name = "toy"
    needs = frozenset({STORE})
    scopes = wire.SCOPES

    def __init__(
        self, settings: ToySettings, store: StoreSettings, datadir: DataDir, clock: Clock, log: Log
    ) -> None:
        self._store = Store(STORE, datadir.database(STORE), store, clock, log)
        self.stores = (self._store,)
        self._toy = Toy(self._store, settings)
        self.loops = (NoteCounter(self._toy, clock, log),)

    def routes(self) -> list[Route]:
        return routes(self._toy)

    def sockets(self) -> list[SocketRoute]:
        return [SocketRoute("/toy/v1/count", wire.READ, self._count, free_on_loopback=True)]

    def facts(self) -> dict[str, float]:
        return {"toy.notes": float(len(self._toy.notes().notes))}

    def _count(
        self, socket: Socket, _who: Principal, _charge: Callable[[int], None], _query: Any
    ) -> int:
        text = msgspec.json.encode({"notes": len(self._toy.notes().notes)})
        socket.send(text_frame(text))
        socket.close(NORMAL_CLOSURE, "counted")
        socket.end()
        return NORMAL_CLOSURE
