"""Observes problems, and sends what the operator doesn't know yet."""

import re
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
_UUID = "[0-9a-f]{8}-[0-9a-f-]{27}"
FAILURE_URLS = (
    (rf"(https?://hc-ping\.com/[^?]+?|https?://[^/]+/ping/{_UUID})/?(\?.*)?", r"\1/fail\2"),
    (r"(https?://[^/]+/api/push/\w+\?(?:.*&)?status=)up(.*)", r"\1down\2"),
    (r"(https?://cronitor\.link/[^?]+\?(?:.*&)?state=)complete(.*)", r"\1fail\2"),
)
"""The forms that healthchecks.io, Uptime Kuma and Cronitor document for a failure."""
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
    """Requests a URL after work that succeeded, or the one for failures after work that failed. A
    request that fails is not repeated: silence is what the service at the URL alerts about."""

    name = "notify_ping"
    interval_seconds = 10.0

    def __init__(
        self, url: str, ping: Callable[[str], str], done: Wakeup, failed: Wakeup, clock: Clock,
        log: Log,
    ) -> None:  # fmt: skip
        """`ping` requests a URL, and returns why that failed, or ""."""
        super().__init__(clock, log)
        self._ping, self._urls = ping, {failed: failure_url(url), done: url}

    def run_once(self, now_ms: int) -> dict[str, int]:
        ended = [work for work in self._urls if work.is_set()]
        for work in ended:
            work.clear()
        url = next((self._urls[work] for work in ended if self._urls[work]), "")
        if url and (problem := self._ping(url)):
            self.log.warning("a ping was not accepted", setting="notify.ping", reason=problem)
        return {"pings": int(bool(url))}


def failure_url(url: str) -> str:
    """What the service at `url` wants to be requested after a failure; "" if it is not known."""
    for pattern, failed in FAILURE_URLS:
        if match := re.fullmatch(pattern, url):
            return match.expand(failed)
    return ""


def read_record(file: Path) -> NotifyRecord:
    """What was sent before; nothing if the file is missing or can't be decoded."""
    try:
        with file.open("rb") as stream:
            return msgspec.json.decode(stream.read(FILE_BYTES_MAX), type=NotifyRecord)
    except (OSError, msgspec.DecodeError):
        return NotifyRecord(known={})
