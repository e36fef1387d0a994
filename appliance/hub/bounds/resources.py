"""Serves pauses and ceilings over HTTP."""

from appliance.hub.access import READ
from appliance.hub.bounds import wire
from appliance.hub.bounds.service import Bounds
from appliance.hub.wire import ADMIN, NoSuchTopic
from appliance.kernel.route import Operation, Route
from appliance.web.responders import Responders, reply_to_change, reply_with

PAUSE = {"principal": "ada", "reason": "deploy freeze", "seconds": 3600}
CEILING = {"name": "ada", "messages": 500, "cost": 20.0}


def routes(bounds: Bounds) -> list[Route]:
    return [
        Route("/api/v1/pauses", Responders(
            get=reply_with(bounds.list_pauses), post=reply_to_change(bounds.pause),
        ), {
            "GET": Operation(READ, reply=wire.PauseList, query=wire.PausesQuery,
                             summary="List the pauses of names, topics and all agents"),
            "POST": Operation(ADMIN, keyed=True, body=wire.BeginPause, reply=wire.PauseChanged,
                              status=201, repeat_status=200, example=PAUSE, audited=True,
                              errors=(wire.BadPause, wire.TooManyPauses, NoSuchTopic),
                              summary="Pause a name, a topic, or all agents"),
        }),
        Route("/api/v1/pauses/resume", Responders(post=reply_to_change(bounds.resume)), {
            "POST": Operation(ADMIN, keyed=True, body=wire.EndPause, reply=wire.PauseChanged,
                              errors=(wire.BadPause, wire.NotPaused), audited=True,
                              example={"principal": "ada"},
                              summary="Resume a name, a topic, or all agents"),
        }),
        Route("/api/v1/ceilings", Responders(
            get=reply_with(bounds.list_ceilings), post=reply_to_change(bounds.set_ceiling),
        ), {
            "GET": Operation(ADMIN, reply=wire.CeilingList, query=wire.CeilingsQuery,
                             summary="List the names with a ceiling, and today's use"),
            "POST": Operation(ADMIN, keyed=True, body=wire.SetCeiling, reply=wire.CeilingShown,
                              status=201, repeat_status=200, example=CEILING, audited=True,
                              errors=(wire.BadCeiling, wire.TooManyCeilings),
                              summary="Set what a name may use on a day"),
        }),
        Route("/api/v1/ceilings/remove", Responders(post=reply_to_change(bounds.remove_ceiling)), {
            "POST": Operation(ADMIN, keyed=True, body=wire.RemoveCeiling, reply=wire.CeilingRemoved,
                              errors=(wire.NoSuchCeiling,), example={"name": "ada"}, audited=True,
                              summary="Remove a name's ceiling"),
        }),
    ]  # fmt: skip
