"""Gives the inbox the outbox's status, and the outbox the dedupe retention and epoch of brokers."""

from appliance.outbox.service import Outbox


class OutboxSendStatus:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def counts(self) -> tuple[int, int]:
        """The number of pending sends and of sends in flight."""
        depth = self._outbox.state().depth
        return depth.get("pending", 0), depth.get("inflight", 0)

    @property
    def features(self) -> list[str]:
        return self._outbox.features

    def set_dedupe_retention(self, mesh: str, retention_days: int | None) -> None:
        """Set for how many days the mesh's broker keeps ids; None: forever."""
        self._outbox.set_retention(mesh, retention_days)

    def set_epoch(self, mesh: str, epoch: str) -> None:
        """Set the epoch that the mesh's broker has now."""
        self._outbox.set_epoch(mesh, epoch)


class NoOutboxStatus:
    """The status while the outbox is disabled."""

    def counts(self) -> tuple[int, int]:
        return 0, 0

    @property
    def features(self) -> list[str]:
        return []

    def set_dedupe_retention(self, mesh: str, retention_days: int | None) -> None:
        return

    def set_epoch(self, mesh: str, epoch: str) -> None:
        return
