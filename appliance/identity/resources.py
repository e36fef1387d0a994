"""The identity on HTTP: what is shown of it, and its rotation."""

from typing import Any

import falcon

from appliance.identity import wire
from appliance.identity.service import Identity, Tell
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply


class IdentityResource:
    def __init__(self, identity: Identity, tell: Tell | None) -> None:
        self._identity = identity
        self._tell = tell

    def on_get(self, _req: Any, resp: falcon.Response) -> None:
        reply(resp, self._identity.shown())

    def on_post_rotate(self, _req: Any, resp: falcon.Response) -> None:
        if self._tell is None:
            raise wire.RotationNeedsInbox
        reply(resp, self._identity.rotate(self._tell))


def routes(identity: Identity, tell: Tell | None) -> list[Route]:
    resource = IdentityResource(identity, tell)
    return [
        Route("/v1/identity", resource, {
            "GET": Operation(wire.READ, reply=wire.IdentityShown, same_origin=True,
                             summary="The member key of this appliance, without its secret"),
        }),
        Route("/v1/identity/rotate", resource, {
            "POST": Operation(wire.ADMIN, reply=wire.Rotated, same_origin=True,
                              errors=(wire.OnlyPersistent, wire.RotationRuns,
                                      wire.RotationUnfinished, wire.RotationNeedsInbox),
                              summary="Another member key, told to every broker first"),
        }, suffix="rotate"),
    ]  # fmt: skip
