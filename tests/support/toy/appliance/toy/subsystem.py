"""Notes as a part of the appliance."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from appliance.toy import wire
from appliance.toy.board import STORE as BOARD
from appliance.toy.loops import NoteCounter
from appliance.toy.resources import routes
from appliance.toy.service import Toy
from appliance.toy.settings import ToySettings
from appliance.toy.tools import tools

from appliance.host import Host
from appliance.kernel.auth import Principal
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool
from appliance.web.frame import text_frame
from appliance.web.socket import Socket

STORE = "toy"
NORMAL_CLOSURE = 1000


class ToySubsystem(Subsystem):
    name = "toy"
    role = Role("notes")
    sections = {"toy": ToySettings}
    needed_stores = frozenset({STORE})
    scopes = wire.SCOPES

    def __init__(self, host: Host) -> None:
        self._store = host.open_store(STORE)
        board = host.open_store(BOARD)
        self.stores = (self._store, board)
        self._toy = Toy(self._store, board, host.section(ToySettings))
        self.loops = (NoteCounter(self._toy, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self._toy)

    def sockets(self) -> list[SocketRoute]:
        return [SocketRoute("/toy/v1/count", wire.READ, self._count, free_on_loopback=True)]

    def tools(self) -> Sequence[Tool]:
        return tools(self._toy)

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
