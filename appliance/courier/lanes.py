"""What is ready, in the order in which it goes out. Pure.

Ten priorities, 9 first. Within one the order is that of `Item.order`. Waiting raises an
envelope by one level every `aging_ms`, so that low ones are late, but never starve.

Envelopes with a partition key stand in their key's line. Only its first is offered, and
only while no other of the key is leased or held back: order within a key is kept.
"""

from collections import deque
from heapq import heapify, heappop, heappush

from appliance.courier.item import READY, Item

STALE_MAX = 64


class Line:
    """One partition key. `head` is offered, `busy` is leased or waits to be retried."""

    __slots__ = ("busy", "head", "waiting")

    def __init__(self) -> None:
        self.head: Item | None = None
        self.busy: Item | None = None
        self.waiting: deque[Item] = deque()


class Lane:
    """One priority: envelopes without a key, and the heads of keys, each in order."""

    __slots__ = ("keyed", "level", "plain")

    def __init__(self, level: int) -> None:
        self.level = level
        self.plain: deque[Item] = deque()
        self.keyed: list[tuple[int, Item]] = []

    def first(self) -> Item | None:
        """The next to go out; what was retired meanwhile is thrown away."""
        plain, keyed = self.plain, self.keyed
        while plain and plain[0].state != READY:
            plain.popleft()
        while keyed and keyed[0][1].state != READY:
            heappop(keyed)
        if keyed and (not plain or keyed[0][0] < plain[0].order):
            return keyed[0][1]
        return plain[0] if plain else None

    def take_first(self, first: Item) -> None:
        if first.key is None:
            self.plain.popleft()
        else:
            heappop(self.keyed)


class Lanes:
    """Ready envelopes of one stream. `ready` counts them all, `open` those on offer."""

    __slots__ = ("_aging_ms", "_lanes", "_lines", "_stale", "open", "ready")

    def __init__(self, aging_ms: int) -> None:
        self._aging_ms = aging_ms
        self._lanes: dict[int, Lane] = {}  # those with something in them
        self._lines: dict[str, Line] = {}
        self._stale = 0
        self.ready = 0
        self.open = 0

    def add(self, item: Item) -> None:
        """At the tail, by its `order`."""
        self.ready += 1
        if item.key is not None:
            line = self._lines.get(item.key)
            if line is None:
                line = self._lines[item.key] = Line()
            line.waiting.append(item)
            self._advance(item.key, line)
            return
        self.open += 1
        lane = self._lanes.get(item.priority)
        if lane is None:
            lane = self._lanes[item.priority] = Lane(item.priority)
        lane.plain.append(item)

    def give_back(self, item: Item) -> None:
        """A leased or delayed one returns: ahead of its key, or to the tail without one."""
        line = None if item.key is None else self._lines.get(item.key)
        if line is None or line.busy is not item:
            self.add(item)
            return
        assert item.key is not None
        line.busy = None
        line.waiting.appendleft(item)
        self.ready += 1
        self._advance(item.key, line)

    def hold(self, item: Item) -> None:
        """Nothing of its key goes out before this one, which waits to be retried."""
        if item.key is None:
            return
        line = self._lines.get(item.key)
        if line is None:
            line = self._lines[item.key] = Line()
            line.busy = item

    def let_go(self, item: Item) -> None:
        """A leased or delayed one is gone or dead: the next of its key may follow."""
        if item.key is None:
            return
        line = self._lines.get(item.key)
        if line is not None and line.busy is item:
            line.busy = None
            self._advance(item.key, line)

    def retire(self, item: Item) -> None:
        """A ready one left by another way than being taken; its state says so already."""
        self.ready -= 1
        if item.key is not None:
            line = self._lines[item.key]
            if line.head is item:
                self.open -= 1
                line.head = None
                self._advance(item.key, line)
        else:
            self.open -= 1
        self._stale += 1
        if self._stale > STALE_MAX and self._stale > self.ready:
            self._sweep()

    def take(self, most: int, now: float) -> list[Item]:
        """The next `most`, or as many as there are on offer."""
        taken: list[Item] = []
        lanes = self._lanes
        while len(taken) < most and lanes:
            lane = next(iter(lanes.values())) if len(lanes) == 1 else self._choose(now)
            if lane is None:
                break
            if len(lanes) == 1 and not lane.keyed:
                self._take_plain(lane, most, taken)
                continue
            first = lane.first()
            if first is None:
                del lanes[lane.level]
                continue
            self._take_one(lane, first)
            taken.append(first)
        return taken

    def oldest(self) -> Item | None:
        """The ready one that waits longest on offer: the first a full stream may drop."""
        heads = [first for lane in self._lanes.values() if (first := lane.first()) is not None]
        return min(heads, key=lambda item: item.order, default=None)

    def _take_plain(self, lane: Lane, most: int, taken: list[Item]) -> None:
        """The usual case: one priority and no keys."""
        plain, before = lane.plain, len(taken)
        while plain and len(taken) < most:
            item = plain.popleft()
            if item.state == READY:
                taken.append(item)
        count = len(taken) - before
        self.ready -= count
        self.open -= count
        if not plain:
            del self._lanes[lane.level]

    def _take_one(self, lane: Lane, item: Item) -> None:
        lane.take_first(item)
        self.ready -= 1
        self.open -= 1
        if item.key is not None:
            line = self._lines[item.key]
            line.head, line.busy = None, item
        if not lane.plain and not lane.keyed:
            del self._lanes[lane.level]

    def _choose(self, now: float) -> Lane | None:
        best, best_rank = None, (0.0, 0)
        for lane in list(self._lanes.values()):
            first = lane.first()
            if first is None:
                del self._lanes[lane.level]
                continue
            age = (now - first.since) // self._aging_ms if self._aging_ms else 0
            rank = (-(lane.level + age), first.order)
            if best is None or rank < best_rank:
                best, best_rank = lane, rank
        return best

    def _advance(self, key: str, line: Line) -> None:
        """Offer the first of a key, if nothing of that key is out."""
        if line.busy is not None or line.head is not None:
            return
        waiting = line.waiting
        while waiting and waiting[0].state != READY:
            waiting.popleft()
        if not waiting:
            del self._lines[key]
            return
        head = line.head = waiting.popleft()
        self.open += 1
        lane = self._lanes.get(head.priority)
        if lane is None:
            lane = self._lanes[head.priority] = Lane(head.priority)
        heappush(lane.keyed, (head.order, head))

    def _sweep(self) -> None:
        """Retired envelopes leave their lanes for good."""
        self._stale = 0
        for lane in self._lanes.values():
            lane.plain = deque(item for item in lane.plain if item.state == READY)
            lane.keyed = [entry for entry in lane.keyed if entry[1].state == READY]
            heapify(lane.keyed)
        for line in self._lines.values():
            line.waiting = deque(item for item in line.waiting if item.state == READY)
