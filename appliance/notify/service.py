"""Notifier: sends messages to all destinations, through the outbox or directly."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log, without_path
from appliance.notify import metrics, wire
from appliance.notify.problems import plain
from appliance.notify.wire import Notice, NotifyResult

OUTBOX = "outbox"  # in the keys of problems with it


class NoticeSender(Protocol):
    """Sends to one kind of destination; passed in by `composition.py`."""

    def send(self, to: str, notice: Notice, *, direct: bool) -> wire.Via:
        """Hand a message to a queue, or deliver it now. Raises ApplianceError."""


class Notifier:
    def __init__(
        self, senders: Mapping[str, NoticeSender], workspace: str, clock: Clock, log: Log
    ) -> None:
        """`senders`: by destination."""
        self._senders = senders
        self._workspace = workspace
        self._clock = clock
        self._log = log

    def send(self, subject: str, text: str, problems: Iterable[str] = ()) -> bool:
        """Send to all destinations. `problems`: keys of those that last. While one of them is about
        the outbox, it is the second way. False if no destination gets the message."""
        suspect = any(OUTBOX in key for key in problems)
        sent = self._send(subject, text, (suspect, not suspect))
        return any(result.via for result in sent.results)

    def test(self, command: wire.NotifyTest) -> wire.NotifyTested:
        """Raises NothingToNotify."""
        if not self._senders:
            raise wire.NothingToNotify
        return self._send("test", "This is a test.", (command.direct,))

    def _send(self, subject: str, text: str, ways: Sequence[bool]) -> wire.NotifyTested:
        subject = plain(f"agentlip {self._workspace}: {subject}")
        at = iso(self._clock.now_ms())
        notice = Notice(f"notify_{random_id()}", self._workspace, at, subject, text)
        results = [self._send_to(to, notice, ways) for to in self._senders]
        return wire.NotifyTested(notice.id, results)

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
