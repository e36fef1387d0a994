"""Orders a stream's ready envelopes for delivery. Pure.

There are ten priorities; 9 is delivered first. Within a priority, `StreamItem.order` decides.
Waiting for `aging_ms` raises an envelope by one priority, so that low priorities are late but never
starve.

Envelopes with a partition key wait in their key's queue. Only the first is available, and only
while no other envelope with the key is leased or delayed. So the order within a key is kept.
"""

from collections import deque
from heapq import heapify, heappop, heappush

from appliance.courier.item import StreamItem
from appliance.courier.lease import READY

STALE_MAX = 64


class PartitionQueue:
    """One partition key's envelopes.

    head        available: it is in a PriorityLevel
    blocked_by  leased or delayed: no envelope with the key is available
    waiting     the others
    """

    __slots__ = ("blocked_by", "head", "waiting")

    def __init__(self) -> None:
        self.head: StreamItem | None = None
        self.blocked_by: StreamItem | None = None
        self.waiting: deque[StreamItem] = deque()


class PriorityLevel:
    """One priority: available envelopes without a key, and the heads of keys (a heap by order)."""

    __slots__ = ("keyed", "priority", "unkeyed")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.unkeyed: deque[StreamItem] = deque()
        self.keyed: list[tuple[int, StreamItem]] = []

    def first(self) -> StreamItem | None:
        """Return the next envelope. Drops envelopes that are no longer ready."""
        unkeyed, keyed = self.unkeyed, self.keyed
        while unkeyed and unkeyed[0].state != READY:
            unkeyed.popleft()
        while keyed and keyed[0][1].state != READY:
            heappop(keyed)
        if keyed and (not unkeyed or keyed[0][0] < unkeyed[0].order):
            return keyed[0][1]
        return unkeyed[0] if unkeyed else None

    def take_first(self, first: StreamItem) -> None:
        if first.key is None:
            self.unkeyed.popleft()
        else:
            heappop(self.keyed)


class ReadyQueue:
    """One stream's ready envelopes: `ready_count` in all, among which `available` can be taken."""

    __slots__ = ("_aging_ms", "_levels", "_partitions", "_stale", "available", "ready_count")

    def __init__(self, aging_ms: int) -> None:
        self._aging_ms = aging_ms
        self._levels: dict[int, PriorityLevel] = {}  # the non-empty ones
        self._partitions: dict[str, PartitionQueue] = {}
        self._stale = 0
        self.ready_count = 0
        self.available = 0

    def add(self, item: StreamItem) -> None:
        """Append the envelope with the highest `order`."""
        self.ready_count += 1
        if item.key is not None:
            partition = self._partitions.get(item.key)
            if partition is None:
                partition = self._partitions[item.key] = PartitionQueue()
            partition.waiting.append(item)
            self._offer_head(item.key, partition)
            return
        self.available += 1
        level = self._levels.get(item.priority)
        if level is None:
            level = self._levels[item.priority] = PriorityLevel(item.priority)
        level.unkeyed.append(item)

    def put_back(self, item: StreamItem) -> None:
        """Return a leased or delayed envelope to its key's head, or else to the tail."""
        partition = None if item.key is None else self._partitions.get(item.key)
        if partition is None or partition.blocked_by is not item:
            self.add(item)
            return
        assert item.key is not None
        partition.blocked_by = None
        partition.waiting.appendleft(item)
        self.ready_count += 1
        self._offer_head(item.key, partition)

    def block_key(self, item: StreamItem) -> None:
        """Block the key of a delayed envelope until that envelope is available."""
        if item.key is None:
            return
        partition = self._partitions.get(item.key)
        if partition is None:
            partition = self._partitions[item.key] = PartitionQueue()
            partition.blocked_by = item

    def unblock_key(self, item: StreamItem) -> None:
        """Make the key's next envelope available: this leased or delayed one was removed."""
        if item.key is None:
            return
        partition = self._partitions.get(item.key)
        if partition is not None and partition.blocked_by is item:
            partition.blocked_by = None
            self._offer_head(item.key, partition)

    def remove(self, item: StreamItem) -> None:
        """Remove an envelope that was not taken and whose state is no longer READY."""
        self.ready_count -= 1
        if item.key is not None:
            partition = self._partitions[item.key]
            if partition.head is item:
                self.available -= 1
                partition.head = None
                self._offer_head(item.key, partition)
        else:
            self.available -= 1
        self._stale += 1
        if self._stale > STALE_MAX and self._stale > self.ready_count:
            self._drop_stale()

    def pop(self, limit: int, now: float) -> list[StreamItem]:
        """Take the next envelopes, at most `limit`."""
        taken: list[StreamItem] = []
        levels = self._levels
        while len(taken) < limit and levels:
            level = next(iter(levels.values())) if len(levels) == 1 else self._pick_level(now)
            if level is None:
                break
            if len(levels) == 1 and not level.keyed:
                self._take_unkeyed(level, limit, taken)
                continue
            first = level.first()
            if first is None:
                del levels[level.priority]
                continue
            self._take_from(level, first)
            taken.append(first)
        return taken

    def oldest(self) -> StreamItem | None:
        """Return the oldest available envelope."""
        heads = [first for level in self._levels.values() if (first := level.first()) is not None]
        return min(heads, key=lambda item: item.order, default=None)

    def _take_unkeyed(self, level: PriorityLevel, limit: int, taken: list[StreamItem]) -> None:
        """Take envelopes in the usual case: one priority and no keys."""
        unkeyed, before = level.unkeyed, len(taken)
        while unkeyed and len(taken) < limit:
            item = unkeyed.popleft()
            if item.state == READY:
                taken.append(item)
        count = len(taken) - before
        self.ready_count -= count
        self.available -= count
        if not unkeyed:
            del self._levels[level.priority]

    def _take_from(self, level: PriorityLevel, item: StreamItem) -> None:
        level.take_first(item)
        self.ready_count -= 1
        self.available -= 1
        if item.key is not None:
            partition = self._partitions[item.key]
            partition.head, partition.blocked_by = None, item
        if not level.unkeyed and not level.keyed:
            del self._levels[level.priority]

    def _pick_level(self, now: float) -> PriorityLevel | None:
        best, best_rank = None, (0.0, 0)
        for level in list(self._levels.values()):
            first = level.first()
            if first is None:
                del self._levels[level.priority]
                continue
            age = (now - first.since) // self._aging_ms if self._aging_ms else 0
            rank = (-(level.priority + age), first.order)
            if best is None or rank < best_rank:
                best, best_rank = level, rank
        return best

    def _offer_head(self, key: str, partition: PartitionQueue) -> None:
        """Make a key's first envelope available, unless the key is blocked."""
        if partition.blocked_by is not None or partition.head is not None:
            return
        waiting = partition.waiting
        while waiting and waiting[0].state != READY:
            waiting.popleft()
        if not waiting:
            del self._partitions[key]
            return
        head = partition.head = waiting.popleft()
        self.available += 1
        level = self._levels.get(head.priority)
        if level is None:
            level = self._levels[head.priority] = PriorityLevel(head.priority)
        heappush(level.keyed, (head.order, head))

    def _drop_stale(self) -> None:
        """Drop all envelopes that are no longer ready."""
        self._stale = 0
        for level in self._levels.values():
            level.unkeyed = deque(item for item in level.unkeyed if item.state == READY)
            level.keyed = [entry for entry in level.keyed if entry[1].state == READY]
            heapify(level.keyed)
        for partition in self._partitions.values():
            partition.waiting = deque(item for item in partition.waiting if item.state == READY)
