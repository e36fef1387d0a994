"""Pure: the nonces of signed requests that could still be replayed, in memory.

A nonce is kept until the timestamp signed with it is too old to be accepted. Both the total and
the number per member are limited, so that one member cannot lock out the others.
"""

import hashlib
from collections.abc import Iterable

FORGET_SECONDS = 1.0


class NonceUsed(Exception):
    """The member has used this nonce before."""


class NoncesFull(Exception):
    """No more nonces can be stored now; `seconds` until one expires."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class UsedNonces:
    """Times are seconds of a monotonic clock, so setting the wall clock does not allow replays."""

    def __init__(self, total_max: int, member_max: int) -> None:
        self._total_max = total_max
        self._member_max = member_max
        self._total = 0
        self._next_forget = 0.0
        self._by_member: dict[str, dict[bytes, int]] = {}

    def __len__(self) -> int:
        return self._total

    def use(self, member: str, nonce: str, now: float, seconds: float) -> bytes:
        """Remember a nonce for at least `seconds`; returns the digest to store.

        Raises NonceUsed or NoncesFull.
        """
        digest = digest_of(member, nonce)
        digests = self._by_member.get(member)
        if digests is not None and digest in digests:
            raise NonceUsed
        self._check_limits(member, now)
        self._add(member, digest, now + seconds)
        return digest

    def restore(self, rows: Iterable[tuple[str, bytes, float]], now: float) -> None:
        """Add stored nonces: (member, digest, seconds left)."""
        for member, digest, seconds in rows:
            if self._total < self._total_max:
                self._add(member, digest, now + seconds)

    def forget(self, now: float) -> int:
        """Drop expired nonces; how many."""
        before = self._total
        for member in list(self._by_member):
            self._forget_of(member, now)
        return before - self._total

    def _add(self, member: str, digest: bytes, until: float) -> None:
        digests = self._by_member.setdefault(member, {})
        if digest not in digests:
            digests[digest] = int(until) + 1
            self._total += 1

    def _check_limits(self, member: str, now: float) -> None:
        digests = self._by_member.get(member, {})
        if len(digests) >= self._member_max:
            self._forget_of(member, now)
            digests = self._by_member.get(member, {})
            if len(digests) >= self._member_max:
                raise NoncesFull(max(next(iter(digests.values())) - now, FORGET_SECONDS))
        if self._total >= self._total_max:
            if now >= self._next_forget:  # not for every request: this goes through all members
                self._next_forget = now + FORGET_SECONDS
                self.forget(now)
            if self._total >= self._total_max:
                raise NoncesFull(FORGET_SECONDS)

    def _forget_of(self, member: str, now: float) -> None:
        """Drop the expired nonces of one member, which come first."""
        digests = self._by_member[member]
        expired = []
        for digest, until in digests.items():
            if until > now:
                break
            expired.append(digest)
        for digest in expired:
            del digests[digest]
        self._total -= len(expired)
        if not digests:
            del self._by_member[member]


def digest_of(member: str, nonce: str) -> bytes:
    return hashlib.sha256(f"{member}\n{nonce}".encode()).digest()[:16]
