"""Notifier: sends messages to all destinations, through the outbox or directly."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

from appliance.kernel.caller import WaitLimit
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError, Exhausted
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log, plain, without_path
from appliance.kernel.wakeup import Wakeup
from appliance.notify import metrics, wire
from appliance.notify.wire import Notice, NotifyResult

OUTBOX: Literal["outbox"] = "outbox"  # also in the keys of problems with it
ATTEMPT_SECONDS = 22.0  # a receiver has 20 to respond
POLL_SECONDS = 0.1
TESTS_MAX = 4  # requests for a test that wait at the same time
NO_ATTEMPT = "the outbox has not tried yet, as after earlier failures: agentlip outbox list"


class NoticeSender(Protocol):
    """Sends to one kind of destination; passed in by `composition.py`."""

    def send(self, to: str, notice: Notice, *, direct: bool) -> wire.Via:
        """Hand a message to a queue, or deliver it now. Raises ApplianceError."""

    def problem(self, to: str, notice: Notice) -> str | None:
        """Return why the first attempt of a message in the queue failed, "" if none did; None if
        there was none yet."""
        return ""


class Notifier:
    def __init__(
        self, senders: Mapping[str, NoticeSender], workspace: str, clock: Clock, log: Log
    ) -> None:
        """`senders`: by destination."""
        self._senders = senders
        self._workspace = workspace
        self._clock = clock
        self._log = log
        self._limit = WaitLimit(TESTS_MAX, Exhausted)

    def send(self, subject: str, text: str, problems: Iterable[str] = ()) -> bool:
        """Send to all destinations. `problems`: keys of those that last. While one of them is about
        the outbox, it is the second way. False if no destination gets the message."""
        suspect = any(OUTBOX in key for key in problems)
        notice, ways = self._notice(subject, text), (suspect, not suspect)
        results = [self._send_to(to, notice, ways) for to in self._senders]
        return any(result.via for result in results)

    def test(self, command: wire.NotifyTest) -> wire.NotifyTested:
        """Send to all destinations, and wait for the first attempts, at most ATTEMPT_SECONDS.
        Raises NothingToNotify, and Exhausted while TESTS_MAX wait."""
        if not self._senders:
            raise wire.NothingToNotify
        ended = Wakeup()
        leave = self._limit.enter(ended.set)
        try:
            notice = self._notice("test", "This is a test.")
            results = [self._send_to(to, notice, (command.direct,)) for to in self._senders]
            until = self._clock.monotonic() + ATTEMPT_SECONDS
            awaited = zip(self._senders, results, strict=True)
            return wire.NotifyTested(notice.id, [
                self._await_attempt(to, result, notice, until, ended) for to, result in awaited
            ])  # fmt: skip
        finally:
            leave()

    def _await_attempt(
        self, to: str, result: NotifyResult, notice: Notice, until: float, ended: Wakeup
    ) -> NotifyResult:
        """The result with the problem of the first attempt, if a queue has the message."""
        if result.via != OUTBOX:
            return result
        problem: str | None = None
        while problem is None and self._clock.monotonic() < until and not ended.wait(POLL_SECONDS):
            problem = self._senders[to].problem(to, notice)
        return NotifyResult(result.to, OUTBOX, NO_ATTEMPT if problem is None else problem or None)

    def _notice(self, subject: str, text: str) -> Notice:
        subject = plain(f"agentlip {self._workspace}: {subject}")
        at = iso(self._clock.now_ms())
        return Notice(f"notify_{random_id()}", self._workspace, at, subject, text)

    def _send_to(self, to: str, notice: Notice, ways: Sequence[bool]) -> NotifyResult:
        """`ways`: whether directly; in their order, until one works."""
        problem, shown = "", without_path(to)
        for direct in ways:
            try:
                via = self._senders[to].send(to, notice, direct=direct)
            except ApplianceError as error:
                problem = error.message
            else:
                metrics.messages.labels(via).inc()
                return NotifyResult(shown, via)
        metrics.messages.labels("none").inc()
        self._log.error("a message to the operator was not sent", to=shown, reason=problem)
        return NotifyResult(shown, None, problem)
