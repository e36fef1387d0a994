"""Pure: the nonces of signed requests that can still be replayed, in memory.

A nonce is kept until the timestamp signed with it is too old to be accepted. Both the total and
the share of one member are limited, so that no member can keep others from being heard.
"""

import hashlib
from collections.abc import Iterable

FORGET_SECONDS = 1.0


class NonceUsed(Exception):
    """The member has used this nonce before."""


class NoncesFull(Exception):
    """No more nonces can be remembered now; `seconds` until one is forgotten."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class UsedNonces:
    """Times are seconds of a monotonic clock: setting the wall clock makes no replay possible."""

    def __init__(self, total_max: int, member_max: int) -> None:
        self._total_max = total_max
        self._member_max = member_max
        self._total = 0
        self._next_forget = 0.0
        self._by_member: dict[str, dict[bytes, int]] = {}

    def __len__(self) -> int:
        return self._total

    def use(self, member: str, nonce: str, now: float, seconds: float) -> bytes:
        """Remember a nonce for at least `seconds`; what to store of it.

        Raises NonceUsed or NoncesFull.
        """
        digest = digest_of(member, nonce)
        held = self._by_member.get(member)
        if held is not None and digest in held:
            raise NonceUsed
        self._check_room(member, now)
        self._add(member, digest, now + seconds)
        return digest

    def restore(self, rows: Iterable[tuple[str, bytes, float]], now: float) -> None:
        """(member, digest, seconds left) as they were stored by an earlier process."""
        for member, digest, seconds in rows:
            if self._total < self._total_max:
                self._add(member, digest, now + seconds)

    def forget(self, now: float) -> int:
        """Drop those whose time is over; how many."""
        before = self._total
        for member in list(self._by_member):
            self._forget_of(member, now)
        return before - self._total

    def _add(self, member: str, digest: bytes, until: float) -> None:
        held = self._by_member.setdefault(member, {})
        if digest not in held:
            held[digest] = int(until) + 1
            self._total += 1

    def _check_room(self, member: str, now: float) -> None:
        held = self._by_member.get(member, {})
        if len(held) >= self._member_max:
            self._forget_of(member, now)
            held = self._by_member.get(member, {})
            if len(held) >= self._member_max:
                raise NoncesFull(max(next(iter(held.values())) - now, FORGET_SECONDS))
        if self._total >= self._total_max:
            if now >= self._next_forget:  # not for every request: it looks at all members
                self._next_forget = now + FORGET_SECONDS
                self.forget(now)
            if self._total >= self._total_max:
                raise NoncesFull(FORGET_SECONDS)

    def _forget_of(self, member: str, now: float) -> None:
        """From the oldest on, up to the first that is still needed."""
        held = self._by_member[member]
        over = []
        for digest, until in held.items():
            if until > now:
                break
            over.append(digest)
        for digest in over:
            del held[digest]
        self._total -= len(over)
        if not held:
            del self._by_member[member]


def digest_of(member: str, nonce: str) -> bytes:
    return hashlib.sha256(f"{member}\n{nonce}".encode()).digest()[:16]
