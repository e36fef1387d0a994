"""Gives the inbox the outbox's status, and the outbox the dedupe retention and epoch of brokers."""

from appliance.inbox.service import OutboxStatus
from appliance.outbox.service import Outbox


class OutboxSendStatus(OutboxStatus):
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def counts(self) -> tuple[int, int]:
        depth = self._outbox.state().depth
        return depth.get("pending", 0), depth.get("inflight", 0)

    @property
    def features(self) -> list[str]:
        return self._outbox.features

    def set_dedupe_retention(self, mesh: str, retention_days: int | None) -> None:
        self._outbox.set_retention(mesh, retention_days)

    def set_epoch(self, mesh: str, epoch: str) -> None:
        self._outbox.set_epoch(mesh, epoch)
