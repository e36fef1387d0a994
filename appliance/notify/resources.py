"""The HTTP route that tests messages to the operator."""

from appliance.kernel.errors import Exhausted
from appliance.kernel.route import Operation, Route
from appliance.notify import wire
from appliance.notify.service import Notifier
from appliance.web.responders import Responders, reply_with


def routes(notifier: Notifier) -> list[Route]:
    return [
        Route("/api/v1/notify/test", Responders(post=reply_with(notifier.test)), {
            "POST": Operation(wire.TEST, body=wire.NotifyTest, reply=wire.NotifyTested,
                              errors=(wire.NothingToNotify, Exhausted),
                              audited=True, in_maintenance=True,
                              summary="Send a test message to all destinations of [notify]"),
        }),
    ]  # fmt: skip
