"""Serves woken agents over HTTP."""

from appliance.hub.access import POST, READ
from appliance.hub.agents import wire
from appliance.hub.agents.service import Agents
from appliance.hub.wire import ADMIN
from appliance.kernel.route import Operation, Route
from appliance.web.responders import Responders, reply_to_caller, reply_to_change, reply_with

REPORT = {"run_id": "a1b2c3", "state": "asleep", "begins": True}
PAUSE = {"reason": "deploy freeze", "seconds": 3600}


def routes(agents: Agents) -> list[Route]:
    return [
        Route("/api/v1/agents", Responders(get=reply_with(agents.list_agents)), {
            "GET": Operation(READ, reply=wire.AgentList, query=wire.AgentsQuery,
                             summary="List agents that are woken: state, pause, waiting entries"),
        }),
        Route("/api/v1/agents/{agent}/report", Responders(
            post=reply_to_caller(agents.report),
        ), {
            "POST": Operation(POST, body=wire.Report, reply=wire.ReportTaken, example=REPORT,
                              errors=(wire.TooManyAgents,),
                              summary="Report an agent's state, and a turn that ended"),
        }),
        Route("/api/v1/agents/{agent}/pause", Responders(post=reply_to_change(agents.pause)), {
            "POST": Operation(ADMIN, keyed=True, body=wire.PauseAgent, reply=wire.AgentShown,
                              example=PAUSE, audited=True,
                              summary="Pause an agent: no turn starts"),
        }),
        Route("/api/v1/agents/{agent}/resume", Responders(post=reply_to_change(agents.resume)), {
            "POST": Operation(ADMIN, keyed=True, body=wire.ResumeAgent, reply=wire.AgentShown,
                              errors=(wire.NoSuchAgent,), audited=True,
                              summary="Resume a paused agent"),
        }),
        Route("/api/v1/agents/{agent}/turns", Responders(get=reply_with(agents.turns)), {
            "GET": Operation(ADMIN, reply=wire.TurnList, query=wire.TurnsQuery,
                             errors=(wire.NoSuchAgent,),
                             summary="List an agent's last turns, newest first"),
        }),
    ]  # fmt: skip
