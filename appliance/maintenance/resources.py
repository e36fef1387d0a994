"""The HTTP route of maintenance mode."""

from appliance.kernel.route import Operation, Route
from appliance.maintenance import wire
from appliance.maintenance.service import Maintenance
from appliance.web.responders import Responders, reply_with


def routes(maintenance: Maintenance) -> list[Route]:
    shown = wire.MaintenanceState
    return [
        Route("/api/v1/maintenance", Responders(
            get=reply_with(maintenance.state), post=reply_with(maintenance.begin),
            delete=reply_with(maintenance.end),
        ), {
            "GET": Operation(wire.READ, reply=shown, summary="Whether writes are refused"),
            "POST": Operation(wire.WRITE, body=wire.BeginMaintenance, reply=shown,
                             errors=(wire.BadEndOfMaintenance,),
                             example={"until": "2026-12-24T18:00:00Z", "reason": "new disk"},
                             summary="Refuse the writes of clients until a time",
                             audited=True, in_maintenance=True),
            "DELETE": Operation(wire.WRITE, reply=shown, summary="Accept writes again",
                                audited=True, in_maintenance=True),
        }),
    ]  # fmt: skip
