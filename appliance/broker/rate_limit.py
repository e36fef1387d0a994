"""Pure: a limit on what is accepted of one mesh in a second, with bursts of one second's worth."""

MESHES_MAX = 10_000


class Limiter:
    """Counts by mesh. `take` answers how many of those asked for may pass."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left: dict[str, tuple[float, float]] = {}  # mesh → what is left, since when

    def take(self, mesh_id: str, wanted: int, now: float) -> int:
        if self._per_second <= 0:
            return wanted
        left = self._at(mesh_id, now)
        passed = min(wanted, int(left))
        self._store(mesh_id, left - passed, now)
        return passed

    def give_back(self, mesh_id: str, count: int, now: float) -> None:
        """What turned out to be no new message costs nothing."""
        if self._per_second > 0 and count:
            left = min(self._at(mesh_id, now) + count, float(self._per_second))
            self._store(mesh_id, left, now)

    def wait_seconds(self, mesh_id: str, now: float) -> float:
        """Until the next one passes."""
        if self._per_second <= 0:
            return 0.0
        return max(0.0, (1.0 - self._at(mesh_id, now)) / self._per_second)

    def _at(self, mesh_id: str, now: float) -> float:
        left, since = self._left.get(mesh_id, (float(self._per_second), now))
        return min(left + max(0.0, now - since) * self._per_second, float(self._per_second))

    def _store(self, mesh_id: str, left: float, now: float) -> None:
        if len(self._left) >= MESHES_MAX and mesh_id not in self._left:
            self._left.clear()
        self._left[mesh_id] = (left, now)
