"""Wakes an agent: waits for its entries, starts a turn for them, and sees whether it settled them.

A second turn gets the entries that a turn leaves, with a reminder. A failed turn is repeated,
later each time. Entries that are still open are escalated: each becomes overdue, and the operator
gets a message. A new start hands over all open entries again.
"""

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from appliance.hub.agents.turn import TurnResult
from appliance.hub.agents.turn_runner import FAILURES_MAX, Settled, TurnRunner
from appliance.hub.agents.wire import ENTRIES_MAX
from appliance.hub.agents.work import Work
from appliance.sdk.errors import Paused

INBOX = "/api/v1/inbox"
TIMEOUT_SECONDS = 70.0  # for an answer; a client that gives up during a wait is deaf for a while
WAIT_SECONDS = 30.0, 55.0  # for one request, at random: agents that begin together spread

Entry = dict[str, Any]
Hub = Any


class Stopped(Exception):
    """A signal ended a wait."""


class Waking:
    """Wakes one agent for its entries after `TurnRunner.begin`. `end` ends it, and the turn that
    runs."""

    def __init__(self, hub: Hub, runner: TurnRunner) -> None:
        self._hub, self._runner, self._name = hub, runner, runner.name
        self._after = 0  # the position up to which entries were handed over
        self._is_waiting = False
        self.stop = runner.stop

    def run(self) -> None:
        """Serve until `stop` is set. Raises Replaced, or what the hub refuses for good."""
        with suppress(Stopped):
            while not self.stop.is_set():
                if self._runner.is_paused():
                    self._runner.may_begin()
                elif self._await_entries() and self._runner.may_begin():
                    self._handle()
        self._runner.report("stopped")

    def end(self) -> None:
        """End soon: a signal handler's call. A running turn is ended first."""
        self.stop.set()
        if self._is_waiting:
            raise Stopped

    # -- entries -------------------------------------------------------------------------

    def _await_entries(self) -> bool:
        """Wait for entries, without listing them. Return whether there are some."""
        try:
            self._is_waiting = True
            if self.stop.is_set():
                return False
            seconds = random.uniform(*WAIT_SECONDS)
            page = self._hub.get(
                INBOX, name=self._name, after=self._after, wait=seconds, limit=1, peek="true"
            )
        except Stopped:
            return False
        except Paused:
            self._runner.expect_pause()
            return False
        finally:
            self._is_waiting = False
        return bool(page["entries"]) and not self.stop.is_set()

    def _take(self) -> list[Entry]:
        """List the entries for a turn; from then on they are in their senders' receipts."""
        page = self._hub.get(INBOX, name=self._name, after=self._after, limit=ENTRIES_MAX)
        return list(page["entries"])

    def _still_open(self, entries: Sequence[Entry]) -> list[Entry]:
        first = min(entry["position"] for entry in entries) - 1
        known = {entry["id"] for entry in entries}
        waiting: list[Entry] = []
        while True:
            page = self._hub.get(INBOX, name=self._name, after=first, limit=200, peek="true")
            waiting += [entry for entry in page["entries"] if entry["id"] in known]
            first = page["next"]
            if not page["has_more"]:
                return waiting

    # -- turns ---------------------------------------------------------------------------

    def _handle(self) -> None:
        """Give entries to turns until they are settled or escalated."""
        entries = self._take()
        if not entries:  # somebody else has settled them
            return
        last = max(entry["position"] for entry in entries)
        failures, reminder = 0, False
        while entries and not self.stop.is_set():
            outcome, entries = self._turn(entries, reminder)
            if not entries or outcome == "stopped":
                break
            failed = outcome != "done"
            failures += failed
            if (reminder and not failed) or failures >= FAILURES_MAX:
                self._escalate(entries)
                break
            reminder = reminder or not failed
            if failed:
                self._runner.rest(failures)
            entries = self._await_turn(entries)
        if not self.stop.is_set():
            self._after = max(self._after, last)

    def _await_turn(self, entries: list[Entry]) -> list[Entry]:
        """Wait until the next turn may begin. Return the entries that are still open then."""
        while not self.stop.is_set():
            if self._runner.may_begin():
                return self._still_open(entries)
        return entries

    def _turn(self, entries: list[Entry], reminder: bool) -> tuple[str, list[Entry]]:
        """Run one turn. Return its outcome, and the entries that it left."""
        left: list[Entry] = []

        def settle(result: TurnResult) -> Settled:
            left.extend(self._settle(entries, result))
            return Settled(ids_of(entries), ids_of(left))

        outcome, _ = self._runner.run(Work(reminder, list(entries)), settle)
        return outcome, left

    def _settle(self, entries: list[Entry], result: TurnResult) -> list[Entry]:
        """Return the entries that a turn left. With `--ack`, success settles them too."""
        left = self._still_open(entries)
        if left and self._runner.limits.acks and result.outcome == "done":
            self._hub.post(f"{INBOX}/acknowledge", {"ids": ids_of(left), "name": self._name}, None)
            return []
        return left

    def _escalate(self, entries: Sequence[Entry]) -> None:
        ids = ids_of(entries)
        self._runner.report("waiting", escalate=ids)
        self._runner.say(f"escalated, because no turn settles them: {', '.join(map(str, ids))}")


def ids_of(entries: Sequence[Entry]) -> list[int]:
    return [entry["id"] for entry in entries]
