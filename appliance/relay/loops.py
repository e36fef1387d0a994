"""Runs the relay's background loops: pruning, and probing waiting agents' endpoints."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from appliance.kernel.clock import HOUR_MS
from appliance.kernel.errors import ApplianceError
from appliance.kernel.loop import Loop
from appliance.kernel.threads import in_thread
from appliance.kernel.unreachable import Unreachable
from appliance.relay import group_writes, queries, v1, wire, writes
from appliance.relay.checklist import describe
from appliance.relay.rows import ApprovalRow
from appliance.relay.service import Relay
from appliance.relay.states import ACTIVE, PENDING
from appliance.web import safe_connect
from appliance.web.address import BadWebhookUrl

PRUNE_SECONDS = 600.0
REACH_SECONDS = 15.0
REACH_AGAIN_MS = HOUR_MS
REACHED_MAX = 10  # endpoints tried in one round
CONNECT_SECONDS = 3.0
RECOVER_SECONDS = 15.0
ASK_SECONDS = 15.0
APPROVE, REVOKE = "approve", "revoke"


class RelayPruner(Loop):
    name = "relay_pruner"
    interval_seconds = PRUNE_SECONDS

    def __init__(self, relay: Relay, archive: Path) -> None:
        """`archive`: the folder for version 1 messages that nobody has read."""
        super().__init__(relay.clock, relay.log)
        self._relay, self._archive = relay, archive

    def run_once(self, now_ms: int) -> dict[str, int]:
        deleted: dict[str, int] = self._relay.store.write(writes.prune)
        deleted["groups"] = self._relay.store.write(group_writes.prune)
        archived = 0
        if now_ms >= self._relay.v1_until_ms:
            archived = self._archive_unread()
            removed = self._relay.store.write(v1.remove_acked, writes.PRUNED_MAX)
            deleted["v1_messages"] = archived + removed
        if archived or writes.PRUNED_MAX in deleted.values():
            self.nudge()
        return deleted

    def _archive_unread(self) -> int:
        """Move the oldest unread messages to a file. Return how many."""
        rows = self._relay.store.read(v1.list_unread)
        if not rows:
            return 0
        numbers, bodies = zip(*rows, strict=True)
        file = in_thread(v1.archive, self._archive, bodies)
        digest = file.partition(".")[0]
        self.log.warning("relay", event="v1.archived", file=file, sha256=digest, messages=len(rows))
        return int(self._relay.store.write(v1.remove_archived, numbers, file))


class KeyRecoverer(Loop):
    """Replaces lost keys once their hour has passed."""

    name = "relay_recoveries"
    interval_seconds = RECOVER_SECONDS

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay.clock, relay.log)
        self._relay = relay

    def run_once(self, now_ms: int) -> dict[str, int]:
        return {"recovered": self._relay.finish_recoveries()}


class ApprovalAsks(Protocol):
    """Questions to admins, passed in by `composition.py`."""

    def ask(self, agent: str, admin: str, email: str, text: str) -> str:
        """Return the id of a question that only this admin may answer; `email`: the admin's mail
        address, if known. A repetition within a day gets the first id."""

    def answer(self, ask_id: str) -> str | None:
        """Return the answer; None while nobody has answered; "" if the question ended without an
        answer."""

    def cancel(self, ask_id: str) -> None: ...
    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` after questions were answered or ended."""


class ApprovalAsker(Loop):
    """Asks each admin about each pending agent whose endpoint was tried, and acts on answers."""

    name = "relay_asks"
    interval_seconds = ASK_SECONDS

    def __init__(self, relay: Relay, asks: ApprovalAsks) -> None:
        super().__init__(relay.clock, relay.log)
        self._relay, self._asks = relay, asks
        asks.listen(self.nudge)

    def run_once(self, now_ms: int) -> dict[str, int]:
        waiting = self._relay.store.read(queries.approval_rows)
        for row in waiting:
            self._settle(row)
        asked = {(row.agent, row.admin) for row in waiting}
        for agent in self._relay.pending_agents():
            tried = any(
                item.name == "endpoint" and item.good is not None for item in agent.checklist
            )
            for admin in self._relay.directory.admins if tried else ():
                answers = admin in agent.approvals or (agent.name, admin) in asked
                if not answers and self._relay.directory.may_decide(admin):
                    self._ask(agent, admin)
        return {"waiting": len(waiting)}

    def _ask(self, agent: wire.PendingAgent, admin: str) -> None:
        row = self._relay.directory.agents.get(admin)
        email = row.owner_email if row is not None and row.status == ACTIVE else ""
        shown = msgspec.structs.replace(agent, owner_email="-")  # visible to every hub reader
        try:
            ask_id = self._asks.ask(agent.name, admin, email, describe(shown))
        except ApplianceError as error:  # such as too many questions; the next round tries again
            self.log.warning("no question for an admin", agent=agent.name, error=error.code)
        else:
            self._relay.store.write(writes.note_ask, agent.name, admin, ask_id)

    def _settle(self, row: ApprovalRow) -> None:
        relay, ask_id = self._relay, row.ask_id or ""
        answer = self._asks.answer(ask_id)
        agent = relay.directory.agents.get(row.agent)
        waits = agent is not None and agent.status == PENDING and row.approved_ms is None
        if not waits or not relay.directory.may_decide(row.admin):
            self._asks.cancel(ask_id)
        elif answer is None:
            return
        elif answer == APPROVE:
            relay.approve(row.agent, row.admin)
        elif answer == REVOKE:
            relay.revoke(row.agent, row.admin)
        relay.store.write(writes.note_ask, row.agent, row.admin, None)


class EndpointChecker(Loop):
    """Connects to each pending agent's endpoint, and sends nothing."""

    name = "relay_endpoints"
    interval_seconds = REACH_SECONDS

    def __init__(self, relay: Relay, resolver: safe_connect.Resolve = safe_connect.resolve) -> None:
        super().__init__(relay.clock, relay.log)
        self._relay = relay
        self._resolve = resolver

    def run_once(self, now_ms: int) -> dict[str, int]:
        store = self._relay.store
        rows = store.read(queries.unreached_agents, now_ms - REACH_AGAIN_MS, REACHED_MAX)
        for name, endpoint in rows:
            store.write(writes.note_reached, name, endpoint, self._problem(endpoint))
        return {"tried": len(rows)}

    def _problem(self, endpoint: str) -> str:
        """Return why the endpoint can't be reached; "" if it can."""
        parts = urlsplit(endpoint)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            safe_connect.open_socket(
                parts.hostname or "", port, self._relay.rules, CONNECT_SECONDS, self._resolve
            ).close()
        except (BadWebhookUrl, Unreachable) as error:
            return str(error)
        except OSError as error:
            return f"no connection: {type(error).__name__}"
        return ""
