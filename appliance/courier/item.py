"""One envelope in one stream, and the state it is in. Pure."""

from typing import Any

READY, DELAYED, LEASED, DEAD, GONE = range(5)
STATES = ("ready", "delayed", "leased", "dead", "gone")
DEFAULT_PRIORITY = 4
FOREVER = float("inf")
Try = tuple[float, str, str, str]


class Item:
    """Made once for every envelope accepted, so it is small and has no methods in the way.

    order     place in the line; a new one whenever it goes to the tail
    at        when it was accepted; since: when it last became ready
    attempts  deliveries that count; failures: those that ended in `fail`
    stamp     number of the alarm that counts; deadline: its instant, or the lease's end
    clock     the line of leases it stands in while leased (see alarm.py)
    row       its row in the journal of a durable stream
    history   attempts that failed: (instant, holder, outcome, error), the latest of them
    """

    __slots__ = (
        "at", "attempts", "body", "clock", "deadline", "delivered", "error", "expires", "expiry",
        "failures", "history", "holder", "id", "key", "leased_at", "order", "priority", "reason",
        "ring", "row", "since", "stamp", "state",
    )  # fmt: skip

    leased_at: float
    reason: str

    def __init__(self, ring: Any, id_: str, body: bytes, order: int, at: float) -> None:
        self.ring = ring
        self.id = id_
        self.body = body
        self.order = order
        self.at = self.since = at
        self.state = READY
        self.priority = DEFAULT_PRIORITY
        self.key: str | None = None
        self.attempts = self.failures = self.delivered = self.stamp = self.row = 0
        self.error = ""
        self.history: list[Try] | None = None
        self.expires = FOREVER
        self.expiry: Expiry | None = None
        self.holder: Any = None
        self.clock: dict[Any, None] | None = None
        self.deadline = 0.0

    def __lt__(self, other: "Item") -> bool:
        return self.order < other.order


class Expiry:
    """The end of an envelope's time to live, as an alarm of its own."""

    __slots__ = ("deadline", "item", "stamp")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.stamp = 0
        self.deadline = 0.0


class Options:
    """What an envelope asks for beside being delivered."""

    __slots__ = ("delay_ms", "key", "priority", "ttl_ms")

    def __init__(
        self,
        priority: int = DEFAULT_PRIORITY,
        key: str | None = None,
        delay_ms: float = 0,
        ttl_ms: float = 0,
    ) -> None:
        self.priority = priority
        self.key = key
        self.delay_ms = delay_ms
        self.ttl_ms = ttl_ms
