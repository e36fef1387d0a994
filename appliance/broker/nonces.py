"""Pure: the nonces of signed requests that could still be replayed, in memory.

A nonce is kept until its signed timestamp is too old to be accepted. Both the total and the number
per member are limited, so that one member cannot lock out the others.
"""

import hashlib
from collections import Counter
from heapq import heappop, heappush


class UsedNonces:
    """The used nonces. Times are seconds on a monotonic clock, so setting the wall clock does
    not allow replays."""

    def __init__(self, total_max: int, member_max: int) -> None:
        self._total_max = total_max
        self._member_max = member_max
        self._by_expiry: list[tuple[float, str, bytes]] = []  # a heap
        self._digests: set[bytes] = set()
        self._of_member: Counter[str] = Counter()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def add(self, member: str, digest: bytes, until: float) -> None:
        heappush(self._by_expiry, (until, member, digest))
        self._digests.add(digest)
        self._of_member[member] += 1

    def wait_seconds(self, member: str, now: float) -> float:
        """Return 0 if another of the member's nonces can be stored, else how long until one
        expires."""
        self.prune(now)
        if self._of_member[member] < self._member_max and len(self._by_expiry) < self._total_max:
            return 0
        return max(self._by_expiry[0][0] - now, 1.0)

    def prune(self, now: float) -> None:
        """Delete expired nonces."""
        while self._by_expiry and self._by_expiry[0][0] < now:
            _, member, digest = heappop(self._by_expiry)
            self._digests.discard(digest)
            self._of_member[member] -= 1


def digest_of(member: str, nonce: str) -> bytes:
    return hashlib.sha256(f"{member}\n{nonce}".encode()).digest()[:16]
