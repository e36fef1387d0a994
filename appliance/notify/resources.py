"""The HTTP route that tests messages to the operator."""

from typing import Any

import falcon

from appliance.kernel.route import Operation, Route
from appliance.notify import wire
from appliance.notify.service import Notifier
from appliance.web.media import reply


class NotifyTestResource:
    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier

    def on_post(self, req: Any, resp: falcon.Response, command: wire.NotifyTest) -> None:
        del req
        reply(resp, self._notifier.test(command.direct))


def routes(notifier: Notifier) -> list[Route]:
    return [
        Route("/api/v1/notify/test", NotifyTestResource(notifier), {
            "POST": Operation(wire.TEST, body=wire.NotifyTest, reply=wire.NotifyTested,
                              errors=(wire.NothingToNotify,),
                              summary="Send a test message to all destinations of [notify]"),
        }),
    ]  # fmt: skip
