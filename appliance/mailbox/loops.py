"""Runs the mailbox's loop: heartbeats, contacts, broadcasts, and command line messages."""

from typing import Any

from appliance.kernel.loop import Loop
from appliance.kernel.pool import GreenletPool
from appliance.mailbox.contact_asks import ContactAsker, ContactAsks
from appliance.mailbox.service import AGENTS_MAX, Mailbox
from appliance.sdk.network.agent import NetworkAgent

ROUND_SECONDS = 0.5  # slower work, such as a relay that hangs, goes on beside later rounds


class NetworkLoop(Loop):
    name = "network"
    interval_seconds = 1.0

    def __init__(self, mailbox: Mailbox, asks: ContactAsks | None = None) -> None:
        """Create the loop. Without `asks`, contact requests wait for the command line."""
        super().__init__(mailbox.clock, mailbox.log)
        self._mailbox = mailbox
        self._asker = None if asks is None else ContactAsker(asks, mailbox.clock, mailbox.log)
        self._pool = GreenletPool(AGENTS_MAX)
        self._rounds: dict[str, Any] = {}

    def run_once(self, now_ms: int) -> dict[str, int]:
        """Run a round for each agent whose last round has ended, all in parallel."""
        self._mailbox.refresh()
        for name, agent in self._mailbox.agents.items():
            if name not in self._rounds:
                self._rounds[name] = self._pool.spawn(self._run_round, agent)
        self._pool.join(ROUND_SECONDS)
        for name in [name for name, task in self._rounds.items() if task.ready()]:
            self._rounds.pop(name).get()  # raises the round's error
        return {"agents": len(self._mailbox.agents)}

    def _run_round(self, agent: NetworkAgent) -> None:
        agent.run_once()
        if self._asker is not None:
            self._asker.follow(agent)

    def stop(self, timeout_seconds: float = 0.5) -> None:
        super().stop(timeout_seconds)
        self._pool.kill(block=False)
