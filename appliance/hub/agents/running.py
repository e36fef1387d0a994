"""Wakes an agent: waits for its entries, starts a turn for them, and sees whether it settled them.

A second turn gets the entries that a turn leaves, with a reminder. A failed turn is repeated,
later each time. Entries that are still open are escalated: each becomes overdue, and the operator
gets a message. A new start hands over all open entries again.
"""

import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec

from appliance.hub.agents.claims import KeptClaims
from appliance.hub.agents.turn import TurnResult, run_turn
from appliance.hub.agents.wire import ENTRIES_MAX
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Conflict
from appliance.kernel.ids import random_id
from appliance.sdk.errors import Paused

INBOX = "/api/v1/inbox"
TIMEOUT_SECONDS = 70.0  # for an answer; a client that gives up during a wait is deaf for a while
WAIT_SECONDS = 30.0, 55.0  # for one request, at random: agents that begin together spread
PAUSED_SECONDS = 5.0  # between two looks whether a pause has ended
HOUR_SECONDS = 3600.0
FAILURES_MAX = 5  # turns in a row, for the same entries
BACKOFF_SECONDS_MAX = 300.0

Entry = dict[str, Any]
Hub = Any


class Replaced(Conflict):
    code = "AGENT_REPLACED"
    default_message = "another program runs this agent now"
    default_hint = "agentlip agent status"


class Stopped(Exception):
    """A signal ended a wait."""


class Limits(msgspec.Struct, frozen=True):
    """A program's limits for turns. `as_text`: standard input has text, not JSON. `acks`: exit
    code 0 settles the entries."""

    turns_per_hour: int = 60
    seconds_max: float = 1800.0
    as_text: bool = False
    acks: bool = False


class Waking:
    """One program that wakes one agent. `stop` ends it, and the turn that runs."""

    def __init__(
        self, hub: Hub, name: str, words: Sequence[str], limits: Limits, clock: Clock,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._hub, self._name, self._words, self._limits = hub, name, words, limits
        self._clock, self._say = clock, say
        self._run_id = random_id()
        self._began: deque[float] = deque()  # when turns began, within the last hour
        self._number = 0
        self._after = 0  # the position up to which entries were handed over
        self._is_waiting = False
        self.stop = threading.Event()

    def run(self) -> None:
        """Serve until `stop` is set. Raises Replaced, or what the hub refuses for good."""
        self._report("asleep", begins=True)
        with suppress(Stopped):
            while not self.stop.is_set():
                if self._is_paused():
                    self.stop.wait(PAUSED_SECONDS)
                elif self._await_entries() and not self._is_paused():
                    self._handle()
        self._report("stopped")

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
        if not self._may_begin():
            return
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
                self._rest(min(BACKOFF_SECONDS_MAX, 2.0**failures))
        if not self.stop.is_set():
            self._after = max(self._after, last)

    def _turn(self, entries: list[Entry], reminder: bool) -> tuple[str, list[Entry]]:
        """Run one turn and report it. Return its outcome, and the entries that it left."""
        self._number += 1
        self._began.append(self._clock.monotonic())
        self._report("working")
        began_at = iso(self._clock.now_ms())
        work = {
            "agent": self._name, "turn": self._number, "reminder": reminder, "entries": entries,
        }  # fmt: skip
        with KeptClaims(self._hub, self._name, self._say):
            result = run_turn(
                self._words, work, text=self._text(entries, reminder),
                seconds_max=self._limits.seconds_max, stop=self.stop, clock=self._clock,
            )  # fmt: skip
        if result.usage.problem is not None:
            self._say(f"the turn's usage is not counted: {result.usage.problem}")
        left = self._still_open(entries)
        if left and self._limits.acks and result.outcome == "done":
            ids = [entry["id"] for entry in left]
            self._hub.post(f"{INBOX}/acknowledge", {"ids": ids, "name": self._name}, None)
            left = []
        turn = self._turn_report(result, began_at, entries, left)
        self._report("waiting" if left else "asleep", turn=turn)
        self._say(
            f"turn {self._number} of {self._name}: {result.outcome} ({result.code}) in"
            f" {result.seconds:.1f} s, {len(left)} of {len(entries)} entries left"
        )
        return result.outcome, left

    def _turn_report(
        self, result: TurnResult, began_at: str, entries: list[Entry], left: list[Entry]
    ) -> dict[str, Any]:
        return {
            "number": self._number, "began_at": began_at, "seconds": round(result.seconds, 3),
            "outcome": result.outcome, "code": result.code, "output": result.output,
            "entries": [entry["id"] for entry in entries],
            "open": [entry["id"] for entry in left],
            "tokens": result.usage.tokens, "cost": result.usage.cost,
        }  # fmt: skip

    def _text(self, entries: Sequence[Entry], reminder: bool) -> str | None:
        if not self._limits.as_text:
            return None
        ids = " ".join(str(entry["id"]) for entry in entries)
        lines = ["These entries were not acknowledged in your last turn.\n"] if reminder else []
        for entry in entries:
            message = entry["message"]
            lines.append(
                f"Entry {entry['id']} from {message['sender']}:\n{message['content_raw']}\n"
            )
        lines.append(f"When they are handled: agentlip inbox ack {ids} --as {self._name}\n")
        return "\n".join(lines)

    def _escalate(self, entries: Sequence[Entry]) -> None:
        ids = [entry["id"] for entry in entries]
        self._report("waiting", escalate=ids)
        self._say(f"escalated, because no turn settles them: {', '.join(map(str, ids))}")

    # -- limits and reports --------------------------------------------------------------

    def _may_begin(self) -> bool:
        """Wait while the hour's turns are used up; return False if that took a while."""
        now = self._clock.monotonic()
        while self._began and self._began[0] < now - HOUR_SECONDS:
            self._began.popleft()
        if len(self._began) < self._limits.turns_per_hour:
            return True
        self._say(f"{self._limits.turns_per_hour} turns in an hour: waiting")
        self._rest(min(60.0, self._began[0] + HOUR_SECONDS - now))
        return False

    def _rest(self, seconds: float) -> None:
        self._report("waiting")
        self.stop.wait(seconds)

    def _is_paused(self) -> bool:
        return self._report("asleep") is not None

    def _report(self, state: str, *, begins: bool = False, **more: Any) -> Any:
        """Report a state; return the pause, if there is one. Raises Replaced."""
        body = {"run_id": self._run_id, "state": state, "begins": begins, **more}
        path = f"/api/v1/agents/{quote(self._name, safe='')}/report"
        answer = self._hub.post(path, body, None)
        if not answer["newest"]:
            self.stop.set()
            raise Replaced(details={"name": self._name})
        return answer["pause"]
