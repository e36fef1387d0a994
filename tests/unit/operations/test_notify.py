"""What the operator gets, and when: once for each change, never more often than the interval."""

import io

import pytest

from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.wakeup import Wakeup
from appliance.operations.notify import Notifier, NotifyLoop, PingLoop, failure_url
from appliance.operations.problems import CHANGES_MAX, OperatorProblem, is_quiet
from appliance.operations.settings import NotifySettings
from tests.support.clock import FakeClock

MINUTE = 60.0
HOUR = 3600.0


class FakeSender:
    """`queue`: whether the outbox accepts; `network`: whether the receiver can be reached."""

    def __init__(self):
        self.queue = self.network = True
        self.taken = []

    def send(self, to, notice, *, direct):
        if not (self.network if direct else self.queue):
            raise Unavailable("down")
        self.taken.append((to, notice, direct))
        return "direct" if direct else "outbox"


class Operator:
    """The loop with a fake clock. `problems`: what is wrong, by source."""

    def __init__(self, folder, **settings):
        self.clock = FakeClock()
        self.settings = NotifySettings(to=("https://x.test/a",), **settings)
        self.file = folder / "notify.json"
        self.problems = {"outbox.dead": [], "host.disk": [], "ask": []}
        self.sender = FakeSender()
        self.restart()

    def restart(self):
        log = Log(io.BytesIO())
        notifier = Notifier(dict.fromkeys(self.settings.to, self.sender), "w", self.clock, log)
        self.loop = NotifyLoop(
            notifier, lambda: self.problems, self.settings, self.file, self.clock, log
        )

    def set(self, source, *severities):
        self.problems[source] = [
            OperatorProblem(f"p{n}", severity, f"{source} {n}", "agentlip doctor")
            for n, severity in enumerate(severities)
        ]

    def wait(self, seconds):
        """Returns the texts of the messages that were sent meanwhile."""
        before = len(self.sender.taken)
        for _ in range(max(1, round(seconds / 10))):
            self.clock.pass_seconds(10)
            self.loop.run_once(self.clock.now_ms())
        return [notice.text for _, notice, _ in self.sender.taken[before:]]


@pytest.fixture
def operator(tmp_path):
    return Operator(tmp_path)


def test_problem_is_sent_once_when_begun_and_solved(operator):
    operator.set("host.disk", "error")
    assert operator.wait(10) == ["new: error: host.disk 0\n    agentlip doctor"]
    assert operator.wait(HOUR) == []
    operator.set("host.disk")
    assert operator.wait(HOUR) == ["solved: error: host.disk 0"]
    assert operator.wait(HOUR) == []


def test_a_problem_that_comes_and_goes_all_the_time_is_bounded(operator):
    texts = []
    for _ in range(180):
        operator.set("host.disk", "error")
        texts += operator.wait(10)
        operator.set("host.disk")
        texts += operator.wait(10)
    assert len(texts) == 1, "one hour; it never was away for a minute"


def test_no_more_than_one_message_in_the_interval_whatever_happens(operator):
    texts = []
    for minute in range(60):
        operator.set("host.disk", *["error"] * (minute + 1))
        texts += operator.wait(MINUTE)
    assert len(texts) == 12
    assert all(len(text) < 30_000 for text in texts)


def test_a_problem_that_lasts_is_repeated(tmp_path):
    operator = Operator(tmp_path, repeat_seconds=2 * HOUR)
    operator.set("host.disk", "error")
    assert len(operator.wait(1.9 * HOUR)) == 1
    assert operator.wait(0.2 * HOUR) == ["still there: error: host.disk 0\n    agentlip doctor"]
    never = Operator(tmp_path, repeat_seconds=0)
    never.set("host.disk", "error")
    assert never.wait(100 * HOUR) == []


def test_a_restart_repeats_nothing_and_solves_nothing_that_was_not_checked(operator):
    operator.set("host.disk", "error")
    operator.wait(10)
    operator.problems = {}
    operator.restart()
    assert operator.wait(HOUR) == []
    operator.problems = {"host.disk": []}
    assert operator.wait(HOUR) == ["solved: error: host.disk 0"]
    operator.file.write_text("{")
    operator.restart()
    assert operator.wait(HOUR) == []


def test_warnings_are_not_sent_if_only_errors_are_wanted(tmp_path):
    operator = Operator(tmp_path, severity_min="error")
    operator.set("host.disk", "warning")
    operator.set("ask", "question")
    assert operator.wait(HOUR) == ["new: question: ask 0\n    agentlip doctor"]


def test_in_quiet_hours_only_errors_are_sent_and_the_rest_afterwards(tmp_path):
    operator = Operator(tmp_path, quiet_hours="22:00-07:00")
    operator.clock.ms = 1_770_000_000_000 // 86_400_000 * 86_400_000  # midnight
    operator.set("host.disk", "error", "warning")
    assert operator.wait(HOUR) == ["new: error: host.disk 0\n    agentlip doctor"]
    operator.set("host.disk", "warning")
    operator.problems["host.disk"][0] = OperatorProblem("p1", "warning", "host.disk 1")
    assert operator.wait(5.9 * HOUR) == []
    assert operator.wait(0.3 * HOUR) == ["new: warning: host.disk 1\nsolved: error: host.disk 0"]


def test_quiet_hours_are_those_of_the_time_zone():
    noon_utc = 1_770_033_600_000
    assert is_quiet("12:00-13:00", noon_utc)
    assert not is_quiet("12:00-13:00 Europe/Vienna", noon_utc)
    assert is_quiet("13:00-13:01 Europe/Vienna", noon_utc)
    assert not is_quiet("13:00-12:00", noon_utc)


def test_while_the_outbox_has_a_problem_messages_bypass_it(operator):
    operator.set("outbox.dead", "error")
    operator.wait(10)
    operator.set("host.disk", "error")
    operator.wait(10 * MINUTE)
    assert [direct for *_, direct in operator.sender.taken] == [True, True]
    operator.sender.network = False
    operator.set("ask", "question")
    operator.wait(10 * MINUTE)
    assert operator.sender.taken[-1][2] is False, "the queue is the second way"


def test_message_that_no_destination_takes_is_sent_later(operator):
    operator.sender.queue = operator.sender.network = False
    operator.set("host.disk", "error")
    assert operator.wait(HOUR) == []
    operator.sender.queue = True
    assert operator.wait(6 * MINUTE) == ["new: error: host.disk 0\n    agentlip doctor"]


def test_a_clock_that_is_set_back_stops_nothing(operator):
    operator.set("host.disk", "error")
    operator.wait(10)
    operator.clock.ms -= 1_000_000_000
    operator.set("outbox.dead", "error")
    assert len(operator.wait(10)) == 1


def test_a_text_is_plain_and_short(operator):
    operator.problems["ask"] = [OperatorProblem("a", "question", "x\n\x1b[31m" + "y" * 5000)]
    (text,) = operator.wait(10)
    assert text.startswith("new: question: x [31myyy")
    assert len(text) < 400
    assert "\x1b" not in text


def test_a_long_list_is_cut_with_a_count(operator):
    operator.set("host.disk", *["error"] * (CHANGES_MAX + 7))
    (text,) = operator.wait(10)
    assert text.endswith("and 7 more: agentlip doctor")
    assert text.count("new: ") == CHANGES_MAX
    subject = operator.sender.taken[-1][1].subject
    assert subject == f"agentlip w: new: error: host.disk 0, and {CHANGES_MAX + 6} more"


# -- pings -----------------------------------------------------------------------------------

UUID = "8f2c1c0e-4b5d-4c1e-9d53-0e6f3c2b7a11"


@pytest.mark.parametrize(
    ("url", "failed"),
    [
        (f"https://hc-ping.com/{UUID}", f"https://hc-ping.com/{UUID}/fail"),
        (f"https://hc-ping.com/{UUID}/?rid=1", f"https://hc-ping.com/{UUID}/fail?rid=1"),
        ("https://hc-ping.com/key/slug", "https://hc-ping.com/key/slug/fail"),
        (f"https://checks.test/ping/{UUID}", f"https://checks.test/ping/{UUID}/fail"),
        (
            "http://kuma.test:3001/api/push/Tok3n?status=up&msg=OK&ping=",
            "http://kuma.test:3001/api/push/Tok3n?status=down&msg=OK&ping=",
        ),
        (
            "https://cronitor.link/p/key/job?state=complete",
            "https://cronitor.link/p/key/job?state=fail",
        ),
        ("https://example.test/ping/abc", ""),
        ("https://example.test/alive?status=up", ""),
    ],
)
def test_failure_has_the_url_that_its_service_documents(url, failed):
    assert failure_url(url) == failed


@pytest.mark.parametrize(
    ("url", "done", "failed", "requested"),
    [
        (f"https://hc-ping.com/{UUID}", True, False, [f"https://hc-ping.com/{UUID}"]),
        (f"https://hc-ping.com/{UUID}", False, True, [f"https://hc-ping.com/{UUID}/fail"]),
        (f"https://hc-ping.com/{UUID}", True, True, [f"https://hc-ping.com/{UUID}/fail"]),
        ("https://example.test/alive", False, True, []),
        ("https://example.test/alive", True, True, ["https://example.test/alive"]),
    ],
)
def test_ping_says_whether_work_failed(url, done, failed, requested):
    work_done, work_failed, requests, clock = Wakeup(), Wakeup(), [], FakeClock()

    def ping(url):
        requests.append(url)
        return ""

    loop = PingLoop(url, ping, work_done, work_failed, clock, Log(io.BytesIO()))
    for wakeup, wanted in ((work_done, done), (work_failed, failed)):
        if wanted:
            wakeup.set()
    for _ in range(2):
        loop.run_once(clock.now_ms())
    assert requests == requested
