"""Observes problems, and sends what the operator doesn't know yet."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.threads import in_thread
from appliance.kernel.wakeup import Wakeup
from appliance.kernel.whole_file import write_whole
from appliance.notify.problems import KnownProblem, Observed, ProblemBook, describe, is_over
from appliance.notify.service import Notifier
from appliance.notify.settings import NotifySettings

FILE_BYTES_MAX = 4 * 1024 * 1024
INTERVAL_MS = 300_000  # between two messages at least; what happens meanwhile is one message


class NotifyRecord(msgspec.Struct):
    """The content of `.agentlip/notify.json`, so that a restart repeats nothing."""

    sent_ms: int = 0
    known: dict[str, KnownProblem] = {}


class NotifyLoop(Loop):
    """A message goes out at once if the last one is old enough; else changes are collected."""

    name = "notify"
    interval_seconds = 10.0

    def __init__(
        self,
        notifier: Notifier,
        observe: Callable[[], Observed],
        settings: NotifySettings,
        file: Path,
        clock: Clock,
        log: Log,
    ) -> None:
        super().__init__(clock, log)
        self._notifier = notifier
        self._observe = observe
        self._file = file
        self._record = read_record(file)
        self._written = b""
        self._book = ProblemBook(settings, self._record.known)

    def run_once(self, now_ms: int) -> dict[str, int]:
        book, record = self._book, self._record
        book.observe(self._observe(), now_ms)
        changes = book.changes(now_ms)
        sent = 0
        if changes and is_over(record.sent_ms, INTERVAL_MS, now_ms):
            record.sent_ms = now_ms  # also without success: the next attempt waits as long
            if self._notifier.send(*describe(changes), book.known):
                book.note_sent(changes, now_ms)
                sent = len(changes)
        encoded = msgspec.json.encode(record)
        if encoded != self._written:
            with suppress(OSError):  # on a full disk only this process knows what was sent
                in_thread(write_whole, self._file, encoded)
                self._written = encoded
        return {"sent": sent}


class PingLoop(Loop):
    """Requests a URL after work that succeeded. A request that fails is not repeated: silence is
    what the service at the URL alerts about."""

    name = "notify_ping"
    interval_seconds = 10.0

    def __init__(self, ping: Callable[[], str], work_done: Wakeup, clock: Clock, log: Log) -> None:
        """`ping` returns why the request failed, or ""."""
        super().__init__(clock, log)
        self._ping, self._work_done = ping, work_done

    def run_once(self, now_ms: int) -> dict[str, int]:
        if not self._work_done.is_set():
            return {"pings": 0}
        self._work_done.clear()
        if problem := self._ping():
            self.log.warning("a ping was not accepted", setting="notify.ping", reason=problem)
        return {"pings": 1}


def read_record(file: Path) -> NotifyRecord:
    """What was sent before; nothing if the file is missing or can't be decoded."""
    try:
        with file.open("rb") as stream:
            return msgspec.json.decode(stream.read(FILE_BYTES_MAX), type=NotifyRecord)
    except (OSError, msgspec.DecodeError):
        return NotifyRecord(known={})
