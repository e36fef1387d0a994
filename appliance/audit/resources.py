"""The HTTP route of the audit log."""

from typing import Any

import falcon

from appliance.audit import wire
from appliance.auditlog.file import acts
from appliance.auditlog.trail import AuditTrail
from appliance.kernel.route import Operation, Route
from appliance.kernel.threads import in_thread
from appliance.web.media import reply


class AuditResource:
    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        query = req.context.query
        rows = in_thread(acts, self._trail.path, query.before, query.limit + 1, query.actor)
        page = rows[: query.limit]
        reply(resp, wire.AuditedActs(page, page[-1].number if len(rows) > len(page) else 0))


def routes(trail: AuditTrail) -> list[Route]:
    return [
        Route("/api/v1/audit", AuditResource(trail), {
            "GET": Operation(wire.READ, query=wire.ActsQuery, reply=wire.AuditedActs,
                             summary="List administrative acts, newest first"),
        }),
    ]  # fmt: skip
