"""Opens the appliance's network agents: one for each folder."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from appliance.kernel.clock import HOUR_MS, Clock
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.pool import time_limit
from appliance.kernel.unreachable import Unreachable
from appliance.mailbox import metrics
from appliance.mailbox.settings import NetworkSettings
from appliance.network.direct import SECONDS_MAX
from appliance.network.envelope import NotTheRecipient, OpenedMessage
from appliance.sdk.network.agent import NetworkAgent, NetworkEvent
from appliance.sdk.network.broadcasts import KeptBroadcast
from appliance.sdk.network.folder import AgentFolder, NoNetworkAgent
from appliance.sdk.network.post import Post, PostRules, rules_of, tls_context
from appliance.web.address import BadWebhookUrl
from appliance.web.webhook_caller import WebhookCaller, seconds_of

AGENTS_MAX = 100
ALERT_MS = HOUR_MS * 12  # shorter than the time after which lasting problems are repeated
ALERTS_MAX = 20
WARNINGS = frozenset({
    "key-changed", "admin-changed", "broadcast-refused", "heartbeat-failed", "plain-http",
    "group-log-refused", "key-log-refused", "recovery-begun",
})  # fmt: skip
Accept = Callable[[str, OpenedMessage], None]
"""Stores a message for the named recipient."""


class Mailbox:
    """The open agents. `agents` is keyed by name. `problems`: why an agent can't be used, keyed
    by folder name."""

    def __init__(
        self, folder: Path, settings: NetworkSettings, accept: Accept, clock: Clock, log: Log
    ) -> None:
        self.clock, self.log = clock, log
        self.agents: dict[str, NetworkAgent] = {}
        self.problems: dict[str, str] = {}
        self._folder, self.settings, self._accept = folder, settings, accept
        self.refresh()  # before the first request: a refusal would be final for the sender

    def refresh(self) -> None:
        """Open the agents in new folders."""
        opened = {agent.folder.path for agent in self.agents.values()}
        for file in sorted(self._folder.glob("*/agent.json"))[:AGENTS_MAX]:
            if file.parent not in opened:
                self._open(file.parent)

    def receive(self, recipient: Any, envelope: bytes) -> bool:
        """Receive an envelope and return whether the message is new. Raises EnvelopeRefused."""
        name = recipient if isinstance(recipient, str) else ""
        try:
            if name in self.problems:
                raise Unavailable("this agent can't receive at the moment")
            if name not in self.agents:
                raise NotTheRecipient
            is_new = self.agents[name].receive(envelope) is not None
        except ApplianceError as error:
            metrics.received.labels(error.code).inc()
            raise
        metrics.received.labels("NEW" if is_new else "DUPLICATE").inc()
        return is_new

    def facts(self) -> dict[str, float]:
        agents = list(self.agents.values())
        return {
            "network.agents": len(agents),
            "network.unusable": len(self.problems),
            "network.relay_failed": sum(agent.problem is not None for agent in agents),
            "network.changed_keys": sum(agent.changed_keys for agent in agents),
            "network.refused_key_logs": sum(bool(agent.key_log_problem) for agent in agents),
            "network.unreachable": sum(len(agent.unreachable) for agent in agents),
            "network.skew_seconds": max(
                (abs(agent.relay.skew_ms or 0) / 1000 for agent in agents), default=0.0
            ),
        }

    def sender(self, name: str | None) -> NetworkAgent:
        """Return the agent with this name, or the only agent. Raises NoNetworkAgent."""
        agents = [agent for agent in self.agents.values() if name in (None, agent.name)]
        if len(agents) != 1:
            raise NoNetworkAgent
        return agents[0]

    def alerts(self) -> list[KeptBroadcast]:
        """Return the security alerts that arrived within the last twelve hours, without those of
        an agent whose folder fails."""
        since_ms = self.clock.now_ms() - ALERT_MS
        alerts = []
        for agent in self.agents.values():
            with suppress(ApplianceError):  # another check reports the folder
                alerts += [
                    kept
                    for kept in agent.broadcasts(0, ALERTS_MAX, "security-alert")
                    if kept.received_ms > since_ms
                ]
        return alerts

    def close(self) -> None:
        for agent in self.agents.values():
            agent.close()

    def _open(self, path: Path) -> None:
        try:
            config = AgentFolder(path).config()
            agent = NetworkAgent(
                path,
                on_message=partial(self._accept, config.name),
                on_event=partial(self._on_event, config.name),
                auto_approve=self.settings.auto_approve,
                receipts=self.settings.receipts,
                heartbeat_seconds=self.settings.heartbeat_seconds,
                post=guarded_post(rules_of(config)),
                clock=self.clock,
            )
            agent.begin_receiving()
        except ApplianceError as error:
            if self.problems.get(path.name) != error.message:
                self.log.error("a network agent can't be used", error, folder=path.name)
            self.problems[path.name] = error.message
            return
        self.problems.pop(path.name, None)
        self.agents[agent.name] = agent

    def _on_event(self, name: str, event: NetworkEvent) -> None:
        metrics.events.labels(event.kind).inc()
        report = self.log.warning if event.kind in WARNINGS else self.log.info
        more = {"reason": event.details["code"]} if "code" in event.details else {}
        report("agent network event", kind=event.kind, agent=name, other=event.agent, **more)


def guarded_post(rules: PostRules) -> Post:
    """Return a function that posts envelopes to addresses that the rules allow."""
    public = WebhookCaller(rules, tls=tls_context())

    def post(url: str, body: bytes, direct: str = "") -> tuple[int, object]:
        caller, limit = public, cast(AbstractContextManager[None], nullcontext())
        if direct:
            caller = WebhookCaller(rules, lambda _host, _port: [direct], tls_context())
            limit = time_limit(SECONDS_MAX)
        try:
            with limit:
                reply = caller.request(url, {"content-type": "application/json"}, body)
        except (BadWebhookUrl, Unreachable, UnicodeError) as error:
            raise OSError(str(error)) from None
        return reply.status, seconds_of(reply.headers.get("Retry-After"))

    return post
