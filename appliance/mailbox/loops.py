"""The mailbox's loop: heartbeats, contacts, broadcasts, and messages of the command line."""

from appliance.kernel.loop import Loop
from appliance.mailbox.service import Mailbox


class NetworkLoop(Loop):
    name = "network"
    interval_seconds = 1.0

    def __init__(self, mailbox: Mailbox) -> None:
        super().__init__(mailbox.clock, mailbox.log)
        self._mailbox = mailbox

    def run_once(self, now_ms: int) -> dict[str, int]:
        self._mailbox.refresh()
        for agent in list(self._mailbox.agents.values()):
            agent.run_once()
        return {"agents": len(self._mailbox.agents)}
