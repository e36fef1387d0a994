"""HTTP routes of hooks: sending with a grant, and the list of runs."""

from collections.abc import Callable

from appliance.inbox.hooks import wire
from appliance.inbox.hooks.service import HookService
from appliance.kernel.auth import Principal
from appliance.kernel.route import Operation, Route
from appliance.web.responders import Responders, reply_to_caller

RUNS_MAX = 1000
MeshOf = Callable[[str | None, Principal, str], str]


def routes(hooks: HookService, mesh_of: MeshOf) -> list[Route]:
    def runs(query: wire.RunsQuery, who: Principal) -> wire.HookRuns:
        mesh = mesh_of(query.mesh, who, wire.READ)
        return hooks.runs(mesh, query.before, min(query.limit, RUNS_MAX))

    return [
        Route("/v1/hooks/act", Responders(
            post=reply_to_caller(lambda command, who: hooks.act(who, command), 202),
        ), {
            "POST": Operation(wire.ACT, body=wire.Act, reply=wire.Acted, status=202,
                              same_origin=True,
                              errors=(wire.NotGranted, wire.TooManyActs, wire.NoSender),
                              example={"scope": "reply:event", "message": "seen"},
                              summary="Send a message from a running hook, with its own token"),
        }),
        Route("/v1/hooks/runs", Responders(get=reply_to_caller(runs)), {
            "GET": Operation(wire.READ, query=wire.RunsQuery, reply=wire.HookRuns,
                             by_channel=True, same_origin=True,
                             summary="List hook runs, newest first"),
        }),
    ]  # fmt: skip
