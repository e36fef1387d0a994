"""The verbs: report, pause, resume, list agents and their turns."""

from typing import Any

from appliance.hub.agents import metrics, queries, wire, writes
from appliance.hub.service import Hub, keyed_request
from appliance.hub.text import check_name, check_text
from appliance.kernel.auth import Principal, check_sender
from appliance.kernel.errors import Invalid
from appliance.kernel.idempotency import Reply, call_once


class Agents:
    """One per process. Every operation returns when its effect is durable."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._store = hub.store

    def report(self, name: str, command: wire.Report, principal: Principal) -> wire.ReportTaken:
        """Store a waking program's report. A repeated turn is stored once."""
        _check_agent(name)
        check_sender(name, principal.senders)
        if command.turn is not None:
            check_text(output=command.turn.output)
        taken: wire.ReportTaken = self._store.write(writes.report, name, command)
        self._hub.pauses.agents.add(name)
        if command.turn is not None:
            metrics.turns.labels(command.turn.outcome).inc()
            if taken.pause is not None:
                self._hub.pauses.load()  # the turn may have reached a ceiling
        metrics.escalated.inc(len(command.escalate))
        return taken

    def pause(
        self, name: str, command: wire.PauseAgent, principal: Principal, key: str | None = None
    ) -> Reply:
        """Pause a name, and keep its turns from starting; a running turn ends as it would."""
        _check_agent(name)
        if command.reason is not None:
            check_name(reason=command.reason)
        identity = keyed_request(principal, "POST", f"agents/{name}/pause", key, command)
        by, label = principal.label or principal.name, principal.label
        self._hub.pauses.agents.add(name)
        return self._change(identity, writes.pause, name, command, by, label)

    def resume(
        self, name: str, command: wire.ResumeAgent, principal: Principal, key: str | None = None
    ) -> Reply:
        identity = keyed_request(principal, "POST", f"agents/{name}/resume", key, command)
        return self._change(identity, writes.resume, name, principal.label)

    def list_agents(self, query: wire.AgentsQuery) -> wire.AgentList:
        limit = min(query.limit, wire.PAGE_MAX)
        ahead_ms = self._hub.steady.ahead_ms()
        steady_ms = self._hub.steady.now_ms()
        agents = self._store.read(queries.page, query.after, limit, steady_ms, ahead_ms)
        has_more, agents = len(agents) > limit, agents[:limit]
        return wire.AgentList(agents, has_more, agents[-1].name if has_more else "")

    def _change(self, identity: Any, function: Any, *args: Any) -> Reply:
        reply: Reply = self._store.write(*call_once(identity, function, *args))
        self._hub.pauses.load()
        return reply

    def turns(self, name: str, query: wire.TurnsQuery) -> wire.TurnList:
        self._store.read(queries.find, name, 0, 0)
        limit = min(query.limit, wire.TURNS_KEPT)
        return wire.TurnList(self._store.read(queries.turns, name, limit))


def _check_agent(name: str) -> None:
    check_name(name=name)
    if len(name) > wire.NAME_LENGTH_MAX:
        raise Invalid(
            f"the name has more than {wire.NAME_LENGTH_MAX} characters", details={"field": "name"},
            hint="agentlip agent status",
        )  # fmt: skip
