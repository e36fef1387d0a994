"""Pure: limits how many messages of one mesh are accepted per second, with bursts of one second."""

from appliance.kernel.token_bucket import TokenBucket

MESHES_MAX = 10_000


class MeshRateLimit:
    """A token bucket for each mesh. `per_second` 0 means that there is no limit."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, mesh_id: str, count: int, now: float) -> int:
        """How many of `count` messages are within the limit."""
        if self._per_second <= 0:
            return count
        return self._bucket(mesh_id, now).take_up_to(count, now)

    def give_back(self, mesh_id: str, count: int, now: float) -> None:
        """Return tokens of sends that were not accepted as new messages."""
        if self._per_second > 0 and count:
            self._bucket(mesh_id, now).give_back(count, now)

    def wait_seconds(self, mesh_id: str, now: float) -> float:
        """Seconds until the next message is within the limit."""
        if self._per_second <= 0:
            return 0.0
        return self._bucket(mesh_id, now).wait_seconds(1, now)

    def _bucket(self, mesh_id: str, now: float) -> TokenBucket:
        bucket = self._buckets.get(mesh_id)
        if bucket is None:
            if len(self._buckets) >= MESHES_MAX:
                self._buckets.clear()
            rate = float(self._per_second)
            bucket = self._buckets[mesh_id] = TokenBucket(rate, rate, now)
        return bucket
