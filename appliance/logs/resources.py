"""The HTTP route of the log's level."""

from appliance.kernel.route import Operation, Route
from appliance.logs import wire
from appliance.logs.service import RunningLog
from appliance.web.responders import Responders, reply_with


def routes(log: RunningLog) -> list[Route]:
    return [
        Route("/api/v1/log/level", Responders(
            get=reply_with(log.state), post=reply_with(log.set_level),
            delete=reply_with(log.reset_level),
        ), {
            "GET": Operation(wire.READ, reply=wire.LogLevel, summary="The lowest level logged"),
            "POST": Operation(wire.WRITE, body=wire.SetLogLevel, reply=wire.LogLevel, audited=True,
                              summary="Log another level for some time, without a restart"),
            "DELETE": Operation(wire.WRITE, reply=wire.LogLevel, audited=True,
                                summary="Log the level of the settings again"),
        }),
    ]  # fmt: skip
