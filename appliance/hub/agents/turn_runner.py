"""Runs an agent's turns, one at a time and within its limits, and reports them to the hub."""

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from appliance.hub.agents.claims import KeptClaims
from appliance.hub.agents.turn import TurnResult, run_turn
from appliance.hub.agents.work import Work
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Conflict
from appliance.kernel.ids import random_id
from appliance.sdk.paths import path_segment

PAUSED_SECONDS = 5.0  # between two looks whether a pause has ended
LEASE_SECONDS = 45  # a replaced program's turn has ended then, also after its SIGKILL
REPORT_SECONDS = 300.0  # between two reports while nothing happens; each is a commit
HOUR_SECONDS = 3600.0
FAILURES_MAX = 5  # turns in a row, for the same entries
BACKOFF_SECONDS_MAX = 300.0

Hub = Any


class Replaced(Conflict):
    code = "AGENT_REPLACED"
    default_message = "another program runs this agent now"
    default_hint = "agentlip agent status"


class Limits(msgspec.Struct, frozen=True):
    """A program's limits for turns. `as_text`: standard input has text, not JSON. `acks`: exit
    code 0 settles the entries."""

    turns_per_hour: int = 60
    seconds_max: float = 1800.0
    as_text: bool = False
    acks: bool = False


class Settled(NamedTuple):
    """The entries that a turn was given, and those it left, by id."""

    entries: Sequence[int] = ()
    left: Sequence[int] = ()


class TurnRunner:
    """One agent's turns. Several threads may bring work; the client `hub` is for this class alone.
    `stop` ends the running turn."""

    def __init__(
        self, hub: Hub, name: str, words: Sequence[str], limits: Limits, clock: Clock,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.name, self.limits, self.say = name, limits, say
        self._path = f"/api/v1/agents/{path_segment(name)}/report"
        self._hub, self._words, self._clock = hub, words, clock
        self._run_id = f"{os.getpid()}@{socket.gethostname()[:30]}-{random_id()[:12]}"
        self._began: deque[float] = deque()  # when turns began, within the last hour
        self._number = 0
        self._lock = threading.RLock()
        self._pause: Any = None
        self._reported = float("-inf")
        self.stop = threading.Event()

    def begin(self) -> bool:
        """Take the agent's name, and wait until a replaced program's turn has ended. Return False
        if `stop` was set before."""
        taken = self.report("asleep", begins=True)
        runner, first = taken.get("runner"), taken.get("last_turn")
        if runner is None or runner["state"] == "stopped":
            return not self.stop.is_set()
        self.say(f"replaces {runner['run_id']}, {runner['state']} since {runner['state_since']}")
        if runner["state"] != "working":
            return not self.stop.is_set()
        self.say(f"waits until the other turn has ended, for about {LEASE_SECONDS} s at most")
        for _ in range(LEASE_SECONDS):  # while the hub is not there, the other turn goes on too
            if self.stop.wait(1.0):
                return False
            taken = self.report("working")
            if taken["last_turn"] != first:
                break
        self.report("asleep")
        return True

    def run(
        self, work: Work, settle: Callable[[TurnResult], Settled] = lambda _: Settled()
    ) -> tuple[str, TurnResult]:
        """Run one turn, call `settle` and report both. Return the outcome and the result. Raises
        Replaced."""
        with self._lock:
            self._number += 1
            self._began.append(self._clock.monotonic())
            self.report("working")
            began_at = iso(self._clock.now_ms())
            with KeptClaims(self._hub, self.name, self.say, self._end_if_replaced):
                result = run_turn(
                    self._words, work.to_json(self.name, self._number),
                    text=work.to_text(self.name) if self.limits.as_text else None,
                    seconds_max=self.limits.seconds_max, stop=self.stop, clock=self._clock,
                )  # fmt: skip
            if result.usage.problem is not None:
                self.say(f"the turn's usage is not counted: {result.usage.problem}")
            settled = settle(result)
            turn = self._turn_report(result, began_at, settled)
            self.report("waiting" if settled.left else "asleep", turn=turn)
            self._say_outcome(work, result, settled)
        return result.outcome, result

    def may_begin(self) -> bool:
        """Return whether a turn may begin now; if not, wait a while first. Raises Replaced."""
        if self.is_paused(at_once=True):
            self.stop.wait(PAUSED_SECONDS)
            return False
        return not self.stop.is_set() and self._is_within_hour()

    def is_paused(self, *, at_once: bool = False) -> bool:
        """Report, unless a report is recent. Return whether the agent is paused."""
        with self._lock:
            if at_once or self._clock.monotonic() - self._reported > REPORT_SECONDS:
                self.report("asleep")
            return self._pause is not None

    def expect_pause(self) -> None:
        """Report before the next wait: the hub has refused one because of a pause."""
        self._reported = float("-inf")

    def rest(self, failures: int) -> None:
        """Wait before the next attempt, longer after each failure."""
        self._wait(min(BACKOFF_SECONDS_MAX, 2.0**failures))

    def report(self, state: str, *, begins: bool = False, **more: Any) -> Any:
        """Report a state; return the answer. Raises Replaced."""
        body = {"run_id": self._run_id, "state": state, "begins": begins, **more}
        with self._lock:
            answer = self._hub.post(self._path, body, None)
            self._pause, self._reported = answer["pause"], self._clock.monotonic()
        if not answer["newest"]:
            self.stop.set()
            runner = answer["runner"]
            raise Replaced(
                f"{runner['run_id']} runs this agent since {runner['state_since']}",
                details={"name": self.name, **runner},
            )
        return answer

    def _end_if_replaced(self) -> None:
        """Report a running turn. End it if another program has the name now."""
        body = {"run_id": self._run_id, "state": "working"}
        if not self._hub.post(self._path, body, None)["newest"]:
            self.stop.set()

    # -- inside -------------------------------------------------------------------------

    def _is_within_hour(self) -> bool:
        """Wait while the hour's turns are used up; return False if that took a while."""
        now = self._clock.monotonic()
        with self._lock:
            while self._began and self._began[0] < now - HOUR_SECONDS:
                self._began.popleft()
            if len(self._began) < self.limits.turns_per_hour:
                return True
            first = self._began[0]
        self.say(f"{self.limits.turns_per_hour} turns in an hour: waiting")
        self._wait(min(60.0, first + HOUR_SECONDS - now))
        return False

    def _wait(self, seconds: float) -> None:
        self.report("waiting")
        self.stop.wait(seconds)

    def _turn_report(self, result: TurnResult, began_at: str, settled: Settled) -> dict[str, Any]:
        return {
            "number": self._number, "began_at": began_at, "seconds": round(result.seconds, 3),
            "outcome": result.outcome, "code": result.code, "output": result.output,
            "entries": settled.entries, "open": settled.left,
            "tokens": result.usage.tokens, "cost": result.usage.cost,
        }  # fmt: skip

    def _say_outcome(self, work: Work, result: TurnResult, settled: Settled) -> None:
        parts = [f"{len(settled.left)} of {len(work.entries)} entries left"] * bool(work.entries)
        parts += [f"{len(work.envelopes)} envelopes"] * bool(work.envelopes)
        parts += [f"{len(work.messages)} bus messages"] * bool(work.messages)
        self.say(
            f"turn {self._number} of {self.name}: {result.outcome} ({result.code}) in"
            f" {result.seconds:.1f} s, {', '.join(parts)}"
        )
