"""What the inbox tells its clients of sending, and the outbox of a broker's memory."""

from appliance.outbox.service import Outbox


class SendStatus:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def counts(self) -> tuple[int, int]:
        """How many sends wait, and how many are in flight."""
        depth = self._outbox.state().depth
        return depth.get("pending", 0), depth.get("inflight", 0)

    @property
    def features(self) -> list[str]:
        return self._outbox.features

    def adopt(self, mesh: str, retention_days: int | None) -> None:
        """For how many days the broker of that mesh knows ids; None: for ever."""
        self._outbox.adopt(mesh, retention_days)


class NothingSent:
    """While the outbox is switched off."""

    def counts(self) -> tuple[int, int]:
        return 0, 0

    @property
    def features(self) -> list[str]:
        return []

    def adopt(self, mesh: str, retention_days: int | None) -> None:
        return
