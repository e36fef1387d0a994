"""Credit and fairness: who gets the next envelope of a stream. Pure.

A taker is served while it has credit. Each seat (a taker at one stream) counts what it
was served; nobody may lead the seat that was served least by more than LEAD_MAX. Seats
without credit do not count, except for a moment: a taker that usually gives its credit
back within HOLD_MS is about to do so again, and is waited for that long. Without this a
saturated stream favours whoever is quickest by half; with it, a slow taker still delays
nobody, for it is not waited for once it is known to be slow.

A seat that comes back starts level with the least served, not with what it missed.
"""

from collections.abc import Callable

from appliance.courier.item import Item
from appliance.courier.ring import Ring

LEAD_MAX = 4
HOLD_MS = 5.0
REMEMBERED = 0.8  # weight of the past in how quick a taker is


class Taker:
    """Somebody who receives. `out` is what was dealt and not written yet."""

    __slots__ = (
        "_empty_at", "credit", "glob", "hold_until", "id", "inflight", "lease_ms", "name", "out",
        "seats", "turn", "turnaround_ms", "twins", "wake",
    )  # fmt: skip

    def __init__(
        self, id_: str, name: str, wake: Callable[[], None], lease_ms: int | None = None
    ) -> None:
        self.id = id_
        self.name = name
        self.wake = wake
        self.lease_ms = lease_ms
        self.glob: str | None = None
        self.credit = 0
        self.inflight: dict[str, Item] = {}
        self.twins: dict[str, list[Item]] = {}
        self.out: list[Item] = []
        self.seats: list[Seat] = []
        self.turn = 0
        self.turnaround_ms = 0.0
        self.hold_until = 0.0
        self._empty_at: float | None = None

    def grant(self, credit: int, now: float) -> None:
        self.credit += credit
        if credit and self._empty_at is not None:
            took = min(now - self._empty_at, 100 * HOLD_MS)
            self.turnaround_ms = REMEMBERED * self.turnaround_ms + (1 - REMEMBERED) * took
            self._empty_at = None

    def spend(self, credit: int, now: float) -> None:
        self.credit -= credit
        if self.credit == 0:
            self._empty_at = now
            self.hold_until = now + HOLD_MS if self.turnaround_ms <= HOLD_MS else 0.0

    def find(self, id_: str) -> Item | None:
        """The envelope of this id that it holds; patterns may hold one id of two streams."""
        item = self.inflight.get(id_)
        if item is None and id_ in self.twins:
            item = self.twins[id_][0]
        return item


class Seat:
    """A taker's place at one stream."""

    __slots__ = ("away", "ring", "served", "taker")

    def __init__(self, ring: Ring, taker: Taker) -> None:
        self.ring = ring
        self.taker = taker
        self.served = ring.floor
        self.away = False


def sit(ring: Ring, taker: Taker) -> Seat:
    if len(ring.seats) == 1:  # who was alone was not compared with anybody
        ring.floor = ring.seats[0].served
    seat = Seat(ring, taker)
    ring.seats.append(seat)
    taker.seats.append(seat)
    return seat


def leave(taker: Taker) -> None:
    """Off all its seats, without credit; what it holds is the caller's concern."""
    taker.credit = 0
    for seat in taker.seats:
        seat.ring.seats.remove(seat)
    taker.seats = []


def deal(ring: Ring, now: float, most: int | None = None) -> int:
    """Hand out what is ready to whoever has credit, fairly; how many (at most `most`)."""
    if ring.paused or not ring.lanes.open:
        return 0
    seats = ring.seats
    if len(seats) == 1:
        seat = seats[0]
        credit = seat.taker.credit
        return _serve(seat, credit if most is None else min(credit, most), now) if credit else 0
    dealt = 0
    while ring.lanes.open and (most is None or dealt < most):
        given = _round(ring, now, None if most is None else most - dealt)
        if not given:
            break
        dealt += given
    return dealt


def _round(ring: Ring, now: float, most: int | None) -> int:
    """Once around the table, the least served first."""
    able = _present(ring, now)
    if not able:
        return 0
    able.sort(key=_served)
    ceiling = ring.floor + LEAD_MAX
    plenty = most is None and ring.lanes.open >= LEAD_MAX * len(able)
    dealt = 0
    for seat in able:
        room = ceiling - seat.served
        if room <= 0 or not ring.lanes.open or (most is not None and dealt >= most):
            break
        credit = seat.taker.credit
        dealt += _serve(seat, min(room, credit) if plenty else 1, now)
    if not dealt:
        ring.hold_back()
    return dealt


def _served(seat: Seat) -> int:
    return seat.served


def _present(ring: Ring, now: float) -> list[Seat]:
    """Seats with credit; the floor is set by them and by those that are waited for."""
    able: list[Seat] = []
    floor: int | None = None
    for seat in ring.seats:
        taker = seat.taker
        if taker.credit > 0:
            if seat.away:
                seat.away = False
                seat.served = max(seat.served, ring.floor)
            able.append(seat)
        elif seat.away or taker.hold_until <= now:
            seat.away = True
            continue
        if floor is None or seat.served < floor:
            floor = seat.served
    if floor is not None:
        ring.floor = floor
    return able


def _serve(seat: Seat, most: int, now: float) -> int:
    taker, ring = seat.taker, seat.ring
    items = ring.claim(most, taker, now, taker.lease_ms or ring.policy.lease_ms)
    if items:
        seat.served += len(items)
        taker.spend(len(items), now)
        taker.out += items
        taker.wake()
    return len(items)


def pump(taker: Taker, now: float) -> int:
    """Credit came: serve this taker's streams in turn, a few of each at a time."""
    if len(taker.seats) == 1:
        return deal(taker.seats[0].ring, now)
    dealt = 0
    progress = True
    while progress and taker.credit > 0:
        progress = False
        seats = taker.seats
        for _ in range(len(seats)):
            if taker.credit <= 0:
                break
            taker.turn = (taker.turn + 1) % len(seats)
            given = deal(seats[taker.turn].ring, now, LEAD_MAX)
            dealt += given
            progress = progress or given > 0
    return dealt
