"""A store with nothing else to do: its small writes are committed on the event loop.

The writer has its own thread or process, so a write waits for two hand-overs beside the
commit; a client that waits for each answer waits for both each time. Where nobody else could
share the commit, the loop does it at once, over a connection of its own. `may` says when:

- The last CALM writes came alone, one after the other. Company shares commits, which is worth
  more than a hand-over, and sharing only shows where writes wait: so every PROBE_EVERYth still
  goes to the writer, as does the first of every PROBE_SECONDS, and two greenlets in one turn
  of the loop are company too.
- They took `store.inline_ms_max` at most, on average, where one slow one counts little. What
  the writer took counts, hand-over included: a slow disk, or a busy loop, is known before the
  loop has ever waited for it.
- The loop was not held for that long in this turn.

`run` never waits for SQLite's lock, and never decides what trouble means: whatever SQLite says
but yes, nothing was stored, and the writer does the write again and reports.
"""

import sqlite3
from pathlib import Path
from typing import Any

import gevent

from appliance.kernel.batch import BatchRunner, Call, Outcome
from appliance.kernel.clock import Clock
from appliance.kernel.ids import IdFactory
from appliance.kernel.reader import close_connection, open_connection

SMALL_BYTES = 8192  # of text in one write: two pages, as many as its rows touch anyway
CALM = 16
PROBE_EVERY = 32
PROBE_SECONDS = 1.0  # the writer looks for room on the disk as often
SHARE = 1 / 16  # of a new write in the average: about so many count
OUTLIER = 4  # times the limit is as slow as one write can count: three in a row are too many
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 2.0, 120.0  # after commits that were slow; doubled each time


class Alone:
    """Used on one event loop, between two of its turns."""

    def __init__(
        self,
        path: Path,
        synchronous: str,
        ms_max: float,
        clock: Clock,
        ids: IdFactory,
        runner: type[BatchRunner] = BatchRunner,
    ) -> None:
        """`ids` are those of the store's writer, or follow them, as it follows these."""
        self._path = path
        self._synchronous = synchronous
        self._limit = ms_max / 1000
        self._clock = clock
        self._ids = ids
        self._runner_type = runner
        self._runner: BatchRunner | None = None
        self._turn_now = gevent.get_hub().loop.now
        self._turn = (0.0, 0)  # when the loop last looked for events, and who writes in it
        self._held = 0.0  # seconds of this turn
        self.companies = 0
        self._calm = 0
        self._mean = 2 * self._limit  # seconds; good until shown otherwise is not good enough
        self._until_probe = 0
        self._probed = float("-inf")
        self._off_until = float("-inf")
        self._pause = PAUSE_SECONDS

    def may(self) -> bool:
        """May the loop do the next write? Ask when no other waits or runs."""
        if self._calm < CALM or self._mean > self._limit:
            return False
        now = self._clock.monotonic()
        if now < self._off_until:
            return False
        moment, who = self._turn_now(), id(gevent.getcurrent())
        if moment != self._turn[0]:
            self._turn, self._held = (moment, who), 0.0
        elif who != self._turn[1]:
            self.company()
            return False
        if self._held >= self._limit or self._until_probe <= 0:
            return False
        return now - self._probed < PROBE_SECONDS

    def run(self, call: Call) -> tuple[Outcome, list[Any]] | None:
        """Commit it: its outcome and what it published. None: nothing is stored, ask the writer."""
        try:
            runner = self._runner or self._open()
            began = self._clock.monotonic()  # opening is once, and says nothing of commits
            outcomes, published = runner.run([call])
        except BaseException as error:
            self.close()  # whatever it was, SQLite's lock must not stay
            if not isinstance(error, sqlite3.Error):
                raise
            return None
        self._took(self._clock.monotonic() - began)
        if isinstance(outcomes[0].error, sqlite3.Error):
            return None
        return outcomes[0], published

    def company(self) -> None:
        """A write came while another was under way."""
        self.companies += 1
        self._calm //= 2

    def probed(self, seconds: float, alone: bool) -> None:
        """The writer took a small write, and so long. `alone`: nobody else wanted anything."""
        self._probed = self._clock.monotonic()
        self._until_probe = PROBE_EVERY
        if alone:
            self._calm = min(self._calm + 1, CALM)
            self._weigh(seconds)

    def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            close_connection(runner.connection)

    def _open(self) -> BatchRunner:
        connection = open_connection(self._path, self._synchronous, busy_ms=0)
        self._runner = self._runner_type(connection, self._clock, self._ids)
        return self._runner

    def _took(self, seconds: float) -> None:
        self._until_probe -= 1
        self._held += seconds
        self._weigh(seconds)
        if self._mean <= self._limit:
            return
        now = self._clock.monotonic()
        if now - self._off_until > PAUSE_SECONDS_MAX:
            self._pause = PAUSE_SECONDS
        self._off_until = now + self._pause
        self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)

    def _weigh(self, seconds: float) -> None:
        self._mean += (min(seconds, OUTLIER * self._limit) - self._mean) * SHARE
