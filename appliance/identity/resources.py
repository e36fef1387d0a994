"""HTTP routes of the member key."""

from typing import Any

import falcon

from appliance.identity import wire
from appliance.identity.service import MemberIdentity, PublishKey
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply


class IdentityResource:
    def __init__(self, identity: MemberIdentity, publish_key: PublishKey | None) -> None:
        self._identity = identity
        self._publish_key = publish_key

    def on_get(self, _req: Any, resp: falcon.Response) -> None:
        reply(resp, self._identity.view())

    def on_post_rotate(self, _req: Any, resp: falcon.Response) -> None:
        if self._publish_key is None:
            raise wire.RotationNeedsInbox
        reply(resp, self._identity.rotate(self._publish_key))


def routes(identity: MemberIdentity, publish_key: PublishKey | None) -> list[Route]:
    resource = IdentityResource(identity, publish_key)
    return [
        Route("/v1/identity", resource, {
            "GET": Operation(wire.READ, reply=wire.IdentityView, same_origin=True,
                             summary="Get the member key of this appliance, without its secrets"),
        }),
        Route("/v1/identity/rotate", resource, {
            "POST": Operation(wire.ADMIN, reply=wire.Rotated, same_origin=True,
                              errors=(wire.OnlyPersistent, wire.KeyRotationRunning,
                                      wire.RotationUnfinished, wire.RotationNeedsInbox),
                              summary="Rotate the member key; every broker gets the new one first"),
        }, suffix="rotate"),
    ]  # fmt: skip
