"""Serves incoming webhooks over HTTP. Senders have no token; all other routes need `hub:admin`."""

from typing import Any

import falcon

from appliance.hub.incoming import wire
from appliance.hub.incoming.service import IncomingWebhooks, count_refusal
from appliance.hub.wire import ADMIN
from appliance.kernel.errors import ApplianceError
from appliance.kernel.pauses import Paused
from appliance.kernel.route import OPEN, Operation, Route
from appliance.web.media import reply_stored
from appliance.web.responders import Responders, reply_to_change, reply_with

EXAMPLE = {"name": "ci", "template": "github", "topic_id": "general/builds"}


class DeliveryResource(Responders):
    """Reads the body as it is, because a signature covers its bytes."""

    def __init__(self, incoming: IncomingWebhooks) -> None:
        super().__init__(
            get=reply_with(incoming.show),
            delete=lambda _req, resp, name: reply_stored(resp, incoming.delete(name)),
        )
        self._incoming = incoming

    def on_post(self, req: Any, resp: falcon.Response, name: str) -> None:
        headers = {
            key[5:].replace("_", "-").lower(): value
            for key, value in req.env.items()
            if key.startswith("HTTP_")
        }
        try:
            body = self._incoming.read_body(req.env)
            reply_stored(resp, self._incoming.accept(name, headers, body))
        except ApplianceError as error:
            count_refusal(error)
            raise


def routes(incoming: IncomingWebhooks) -> list[Route]:
    refusals = (wire.BadEndpoint, wire.EndpointExists, wire.TooManyEndpoints, wire.NoCourier)
    return [
        Route("/api/v1/incoming", Responders(
            get=reply_with(incoming.list_all), post=reply_to_change(incoming.create),
        ), {
            "GET": Operation(ADMIN, reply=wire.EndpointList,
                             summary="List incoming webhooks, without their secrets"),
            "POST": Operation(ADMIN, keyed=True, body=wire.CreateEndpoint,
                              reply=wire.EndpointCreated, status=201, errors=refusals,
                              example=EXAMPLE, audited=True,
                              summary="Add an incoming webhook; its secret is shown once"),
        }),
        Route("/api/v1/incoming/{name}", DeliveryResource(incoming), {
            "GET": Operation(ADMIN, reply=wire.EndpointShown, errors=(wire.NoSuchEndpoint,),
                             summary="Show an incoming webhook, without its secret"),
            "POST": Operation(OPEN, body=wire.DeliveryPayload, reply=wire.DeliveryAccepted,
                              status=201, repeat_status=200, verifies_sender=True,
                              errors=(
                                  wire.DeliveryRefused, wire.DeliveryStale, wire.BadDelivery,
                                  Paused,
                              ),
                              summary="Deliver a signed webhook, as its sender does"),
            "DELETE": Operation(ADMIN, reply=wire.EndpointDeleted, errors=(wire.NoSuchEndpoint,),
                                summary="Remove an incoming webhook and its secret",
                                audited=True),
        }),
        Route("/api/v1/incoming/{name}/test", Responders(post=reply_with(incoming.test)), {
            "POST": Operation(ADMIN, body=wire.TestDelivery, reply=wire.DeliveryTested,
                              errors=(wire.NoSuchEndpoint, wire.BadDelivery, Paused),
                              audited=True,
                              summary="Show what a payload becomes, as if it were signed"),
        }),
    ]  # fmt: skip
