"""The HTTP route of maintenance mode."""

from typing import Any

import falcon

from appliance.kernel.route import Operation, Route
from appliance.maintenance import wire
from appliance.maintenance.service import Maintenance
from appliance.web.media import reply


class MaintenanceResource:
    def __init__(self, maintenance: Maintenance) -> None:
        self._maintenance = maintenance

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        del req
        reply(resp, self._maintenance.state())

    def on_post(self, req: Any, resp: falcon.Response, command: wire.BeginMaintenance) -> None:
        del req
        reply(resp, self._maintenance.begin(command))

    def on_delete(self, req: Any, resp: falcon.Response) -> None:
        del req
        reply(resp, self._maintenance.end())


def routes(maintenance: Maintenance) -> list[Route]:
    shown = wire.MaintenanceState
    return [
        Route("/api/v1/maintenance", MaintenanceResource(maintenance), {
            "GET": Operation(wire.READ, reply=shown, summary="Whether writes are refused"),
            "POST": Operation(wire.WRITE, body=wire.BeginMaintenance, reply=shown,
                             errors=(wire.BadEndOfMaintenance,),
                             summary="Refuse the writes of clients until a time"),
            "DELETE": Operation(wire.WRITE, reply=shown, summary="Admit writes again"),
        }),
    ]  # fmt: skip
