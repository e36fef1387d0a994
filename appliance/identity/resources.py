"""HTTP routes of the member key."""

from functools import partial

from appliance.identity import wire
from appliance.identity.service import MemberIdentity, PublishKey
from appliance.kernel.route import Operation, Route
from appliance.web.responders import Responders, reply_with


def routes(identity: MemberIdentity, publish_key: PublishKey | None) -> list[Route]:
    rotate = partial(identity.rotate, publish_key)
    return [
        Route("/v1/identity", Responders(get=reply_with(identity.view)), {
            "GET": Operation(wire.READ, reply=wire.IdentityView, same_origin=True,
                             summary="Get this appliance's member key, without secrets"),
        }),
        Route("/v1/identity/rotate", Responders(post=reply_with(rotate)), {
            "POST": Operation(wire.ADMIN, reply=wire.Rotated, same_origin=True,
                              errors=(wire.OnlyPersistent, wire.RotationUnfinished,
                                      wire.RotationNeedsInbox),
                              summary="Rotate the member key; every broker gets the new one first",
                              audited=True),
        }),
    ]  # fmt: skip
