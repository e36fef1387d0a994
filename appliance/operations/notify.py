"""Messages to the operator: sends them to all destinations, through the outbox or directly."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from appliance.host import Host
from appliance.kernel.caller import WaitLimit
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError, Exhausted
from appliance.kernel.ids import random_id
from appliance.kernel.json_file import read_json
from appliance.kernel.log import Log, plain, without_path
from appliance.kernel.loop import Loop
from appliance.kernel.route import Operation, Route
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.threads import in_thread
from appliance.kernel.wakeup import Wakeup
from appliance.kernel.whole_file import write_whole
from appliance.operations import metrics, wire
from appliance.operations.problems import KnownProblem, Observed, ProblemBook, describe, is_over
from appliance.operations.settings import NotifySettings, kind_of
from appliance.operations.wire import Notice, NotifyResult
from appliance.web.responders import Responders, reply_with

OUTBOX: Literal["outbox"] = "outbox"  # also in the keys for problems with this destination
ATTEMPT_SECONDS = 22.0  # a receiver has 20 to respond
POLL_SECONDS = 0.1
TESTS_MAX = 4  # concurrent requests for a test
NO_ATTEMPT = "the outbox has not tried yet, as after earlier failures: agentlip outbox list"


class NoticeSender(Protocol):
    """A sender for one destination kind; passed in by `composition.py`."""

    def send(self, to: str, notice: Notice, *, direct: bool) -> wire.Via:
        """Hand a message to a queue, or deliver it now. Raises ApplianceError."""

    def problem(self, to: str, notice: Notice) -> str | None:
        """Return why the queued message's first attempt failed, "" if no attempt failed; None if
        there was no attempt yet."""
        return ""


class Notifier:
    def __init__(
        self, senders: Mapping[str, NoticeSender], workspace: str, clock: Clock, log: Log
    ) -> None:
        """Create the notifier. `senders`: by destination."""
        self._senders = senders
        self._workspace = workspace
        self._clock = clock
        self._log = log
        self._limit = WaitLimit(TESTS_MAX, Exhausted)

    def send(self, subject: str, text: str, problems: Iterable[str] = ()) -> bool:
        """Send to all destinations. `problems`: keys for lasting problems. While one concerns
        the outbox, the outbox is the second way. Return False if no destination gets the
        message."""
        suspect = any(OUTBOX in key for key in problems)
        notice, ways = self._notice(subject, text), (suspect, not suspect)
        results = [self._send_to(to, notice, ways) for to in self._senders]
        return any(result.via for result in results)

    def test(self, command: wire.NotifyTest) -> wire.NotifyTested:
        """Send to all destinations, and wait for the first attempts, at most ATTEMPT_SECONDS.
        Raise NothingToNotify, and Exhausted while TESTS_MAX wait."""
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
        """Return the result with the first attempt's problem, if a queue has the message."""
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
        """Send to one destination. `ways`: whether directly; in order, until one works."""
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


FILE_BYTES_MAX = 4 * 1024 * 1024
_UUID = "[0-9a-f]{8}-[0-9a-f-]{27}"
FAILURE_URLS = (
    (rf"(https?://hc-ping\.com/[^?]+?|https?://[^/]+/ping/{_UUID})/?(\?.*)?", r"\1/fail\2"),
    (r"(https?://[^/]+/api/push/\w+\?(?:.*&)?status=)up(.*)", r"\1down\2"),
    (r"(https?://cronitor\.link/[^?]+\?(?:.*&)?state=)complete(.*)", r"\1fail\2"),
)
"""The failure URL forms that healthchecks.io, Uptime Kuma and Cronitor document."""
INTERVAL_MS = 300_000  # between two messages at least; what happens meanwhile is one message


class NotifyRecord(msgspec.Struct):
    """The content for `.agentlip/notify.json`, so that a restart repeats nothing."""

    sent_ms: int = 0
    known: dict[str, KnownProblem] = {}


class NotifyLoop(Loop):
    """A loop that sends at once if the last message is old enough or there is a new alert, and
    otherwise collects changes."""

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
        self._record = read_json(file, NotifyRecord, FILE_BYTES_MAX) or NotifyRecord(known={})
        self._written = b""
        self._tried: set[str] = set()  # alerts whose message is not sent yet
        self._book = ProblemBook(settings, self._record.known)

    def run_once(self, now_ms: int) -> dict[str, int]:
        book, record = self._book, self._record
        book.observe(self._observe(), now_ms)
        changes = book.changes(now_ms)
        sent = 0
        alerts = {change.key for change in changes if change.problem.severity == "alert"}
        if changes and (alerts - self._tried or is_over(record.sent_ms, INTERVAL_MS, now_ms)):
            self._tried = alerts
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
    """A loop that requests a URL after successful work, or the failure URL after failed work. A
    failed request is not repeated: the service at the URL alerts about silence."""

    name = "notify_ping"
    interval_seconds = 10.0

    def __init__(
        self, url: str, ping: Callable[[str], str], done: Wakeup, failed: Wakeup, clock: Clock,
        log: Log,
    ) -> None:  # fmt: skip
        """Create the loop. `ping` requests a URL, and returns why that failed, or ""."""
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
    """Return the URL that the service at `url` expects after a failure, or "" if not known."""
    for pattern, failed in FAILURE_URLS:
        if match := re.fullmatch(pattern, url):
            return match.expand(failed)
    return ""


def routes(notifier: Notifier) -> list[Route]:
    return [
        Route("/api/v1/notify/test", Responders(post=reply_with(notifier.test)), {
            "POST": Operation(wire.NOTIFY, body=wire.NotifyTest, reply=wire.NotifyTested,
                              errors=(wire.NothingToNotify, Exhausted),
                              audited=True, in_maintenance=True,
                              summary="Send a test message to all [notify] destinations"),
        }),
    ]  # fmt: skip


FILE = "notify.json"


class NotifyNeeds(msgspec.Struct, frozen=True):
    """The inputs for notifications. `senders`: by the destination's beginning. `observe`: news for
    the operator. `ping` requests a URL and returns why that failed, or "". `drop_former` drops
    messages waiting for destinations that are no longer listed."""

    senders: Mapping[str, NoticeSender]
    observe: Callable[[], Observed]
    ping: Callable[[str], str] | None
    drop_former: Callable[[Sequence[str]], None] | None = None


class NotifySubsystem(Subsystem):
    name = "notify"
    sections = {"notify": NotifySettings}

    def __init__(self, host: Host, needs: NotifyNeeds) -> None:
        settings, clock, log = host.section(NotifySettings), host.clock, host.log
        self._settings, self._needs = settings, needs
        senders = {to: needs.senders[kind_of(to)] for to in settings.to}
        self._notifier = Notifier(senders, host.datadir.workspace.name, clock, log)
        self.loops: tuple[Loop, ...] = ()
        if senders:
            file = host.datadir.dir / FILE
            self.loops = (NotifyLoop(self._notifier, needs.observe, settings, file, clock, log),)

        if settings.ping and needs.ping is not None:
            self.loops += (
                PingLoop(settings.ping, needs.ping, host.work_done, host.work_failed, clock, log),
            )

    def start(self) -> None:
        if self._needs.drop_former is not None:
            self._needs.drop_former(self._settings.to)

    def routes(self) -> list[Route]:
        return routes(self._notifier)
