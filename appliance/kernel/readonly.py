"""The absent writer of a store that is served without writing."""

from appliance.kernel.clock import Clock
from appliance.kernel.ids import IdFactory
from appliance.kernel.store_errors import StoreReadOnly
from appliance.kernel.write_request import WriteRequest


class NoWriter:
    """The writer of a store that is served read-only. Every request is refused."""

    alive = True
    restarts = 0

    def __init__(self, clock: Clock) -> None:
        self.ids = IdFactory(clock)

    def submit(self, request: WriteRequest) -> None:
        """Raises StoreReadOnly."""
        raise StoreReadOnly

    def close(self, timeout_seconds: float) -> bool:
        return True
