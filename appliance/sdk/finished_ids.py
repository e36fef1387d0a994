"""The envelopes that a consumer has finished, to ack them without working twice.

A lease that expires, or a connection that breaks before an ack arrives, brings an envelope back.
The courier treats an id as a duplicate for as long (`recent_ids.py`), so nothing new is missed.
"""

from collections import OrderedDict

COUNT_MAX = 10_000  # about 2 MB
SECONDS_MAX = 600.0


class FinishedIds:
    def __init__(self) -> None:
        self._finished_at: OrderedDict[str, float] = OrderedDict()

    def add(self, key: str, now: float) -> None:
        self._finished_at[key] = now
        if len(self._finished_at) > COUNT_MAX:
            self._finished_at.popitem(last=False)

    def contains(self, key: str, now: float) -> bool:
        return now - self._finished_at.get(key, now - SECONDS_MAX) < SECONDS_MAX
