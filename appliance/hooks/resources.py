"""HTTP routes of hooks: sending with a grant, and the list of runs."""

from collections.abc import Callable
from typing import Any

import falcon

from appliance.hooks import wire
from appliance.hooks.service import HookService
from appliance.kernel.auth import Principal
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply

RUNS_MAX = 1000
MeshOf = Callable[[str | None, Principal, str], str]


class HooksResource:
    def __init__(self, hooks: HookService, mesh_of: MeshOf) -> None:
        self._hooks = hooks
        self._mesh_of = mesh_of

    def on_post_act(self, req: Any, resp: falcon.Response, command: wire.Act) -> None:
        reply(resp, self._hooks.act(req.context.principal, command), 202)

    def on_get_runs(self, req: Any, resp: falcon.Response) -> None:
        query = req.context.query
        mesh = self._mesh_of(query.mesh, req.context.principal, wire.READ)
        reply(resp, self._hooks.runs(mesh, query.before, min(query.limit, RUNS_MAX)))


def routes(hooks: HookService, mesh_of: MeshOf) -> list[Route]:
    resource = HooksResource(hooks, mesh_of)
    return [
        Route("/v1/hooks/act", resource, {
            "POST": Operation(wire.ACT, body=wire.Act, reply=wire.Acted, status=202,
                              same_origin=True,
                              errors=(wire.NotGranted, wire.TooManyActs, wire.NoSender),
                              example={"scope": "reply:event", "message": "seen"},
                              summary="Send a message from a running hook, with its own token"),
        }, suffix="act"),
        Route("/v1/hooks/runs", resource, {
            "GET": Operation(wire.READ, query=wire.RunsQuery, reply=wire.HookRuns,
                             by_channel=True, same_origin=True,
                             summary="List hook runs, newest first"),
        }, suffix="runs"),
    ]  # fmt: skip
