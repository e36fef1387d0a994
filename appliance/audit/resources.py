"""Defines the audit log's HTTP route."""

from appliance.audit import wire
from appliance.audit.log.file import acts
from appliance.audit.log.trail import AuditTrail
from appliance.kernel.route import Operation, Route
from appliance.kernel.threads import in_thread
from appliance.web.responders import Responders, reply_with


def routes(trail: AuditTrail) -> list[Route]:
    def list_acts(query: wire.ActsQuery) -> wire.AuditedActs:
        rows = in_thread(acts, trail.path, query.before, query.limit + 1, query.actor)
        page = rows[: query.limit]
        return wire.AuditedActs(page, page[-1].number if len(rows) > len(page) else 0)

    return [
        Route("/api/v1/audit", Responders(get=reply_with(list_acts)), {
            "GET": Operation(wire.READ, query=wire.ActsQuery, reply=wire.AuditedActs,
                             summary="List administrative acts, newest first"),
        }),
    ]  # fmt: skip
