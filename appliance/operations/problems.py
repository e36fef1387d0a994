"""Which problems last, and what the operator doesn't know yet. Pure.

observed ─▶ new ─ sent ─▶ known ─ still there after repeat_seconds ─▶ repeated
                          known ─ not observed for a minute      ─▶ solved
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, time
from typing import Literal, NamedTuple

from msgspec import Struct

from appliance.kernel.log import plain
from appliance.operations.settings import NotifySettings

SOLVED_MS = 60_000  # a problem that returns within this time was not solved
CHANGES_MAX = 25  # in one message, which is below 64 KiB then; the rest are counted
OperatorSeverity = Literal["alert", "error", "warning", "question"]
RANKS: dict[OperatorSeverity, int] = {"alert": -1, "error": 0, "warning": 1, "question": 2}
NEVER_SOLVED = frozenset({"alert", "question"})


class OperatorProblem(Struct, frozen=True):
    """A problem for the operator. `subject` is unique within the problem's source. An alert is
    sent at once, and is never solved."""

    subject: str
    severity: OperatorSeverity
    text: str
    hint: str = ""


Observed = Mapping[str, Sequence[OperatorProblem]]
"""The problems by source, such as a check. A source that was not read is missing."""


class KnownProblem(Struct):
    """A problem that was observed. `sent_ms`: when last sent; 0: not yet. `gone_ms`: since when
    the problem is no longer observed."""

    problem: OperatorProblem
    sent_ms: int = 0
    gone_ms: int = 0


class Change(NamedTuple):
    """A change to report. `kind`: new, still there, or solved."""

    kind: str
    key: str
    problem: OperatorProblem


class ProblemBook:
    def __init__(self, settings: NotifySettings, known: dict[str, KnownProblem]) -> None:
        self._settings = settings
        self.known = known

    def observe(self, observed: Observed, now_ms: int) -> None:
        present = {
            f"{source}:{problem.subject}": problem
            for source, problems in observed.items()
            for problem in problems
            if problem.severity != "warning" or self._settings.severity_min == "warning"
        }
        for key, problem in present.items():
            known = self.known.setdefault(key, KnownProblem(problem))
            if RANKS[problem.severity] < RANKS[known.problem.severity]:
                known.sent_ms = 0  # has become worse
            known.problem, known.gone_ms = problem, 0
        for key, known in list(self.known.items()):
            if key not in present and key.partition(":")[0] in observed:
                known.gone_ms = known.gone_ms or now_ms
                if not known.sent_ms or known.problem.severity in NEVER_SOLVED:
                    del self.known[key]

    def changes(self, now_ms: int) -> list[Change]:
        """Return the messages to send now, the worst first."""
        is_night = is_quiet(self._settings.quiet_hours, now_ms)
        due = [
            Change(kind, key, known.problem)
            for key, known in self.known.items()
            if (kind := self._due(known, now_ms))
            if not is_night or (RANKS[known.problem.severity] <= 0 and not known.gone_ms)
        ]
        return sorted(due, key=lambda change: (change.kind, RANKS[change.problem.severity]))

    def _due(self, known: KnownProblem, now_ms: int) -> str:
        if known.gone_ms:
            return "solved" if is_over(known.gone_ms, SOLVED_MS, now_ms) else ""
        repeat_ms = self._settings.repeat_seconds * 1000
        if repeat_ms and known.sent_ms and is_over(known.sent_ms, repeat_ms, now_ms):
            return "still there"
        return "" if known.sent_ms else "new"

    def note_sent(self, changes: Sequence[Change], now_ms: int) -> None:
        for change in changes:
            self.known[change.key].sent_ms = now_ms
            if change.kind == "solved":
                del self.known[change.key]


def describe(changes: Sequence[Change]) -> tuple[str, str]:
    """Return the subject and the text for one message."""
    lines = []
    for kind, _, problem in changes[:CHANGES_MAX]:
        lines.append(f"{kind}: {problem.severity}: {plain(problem.text)}")
        if problem.hint and kind != "solved":
            lines.append(f"    {plain(problem.hint)}")
    if len(changes) > CHANGES_MAX:
        lines.append(f"and {len(changes) - CHANGES_MAX} more: agentlip doctor")
    more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
    return lines[0][:100] + more, "\n".join(lines)


def is_over(since_ms: int, wait_ms: float, now_ms: int) -> bool:
    """Return whether the wait is over, also if the clock was set back meanwhile."""
    return not 0 <= now_ms - since_ms < wait_ms


def is_quiet(hours: str, now_ms: int) -> bool:
    """Return whether the time is in `hours`, such as `22:00-07:00 Europe/Vienna`; without a zone
    UTC. Raise ValueError or ZoneInfoNotFoundError for an unknown zone."""
    if not hours:
        return False
    from zoneinfo import ZoneInfo  # also imports Python's build settings

    span, _, zone = hours.partition(" ")
    start, end = map(time.fromisoformat, span.split("-"))
    now = datetime.fromtimestamp(now_ms / 1000, ZoneInfo(zone or "UTC")).time()
    return start <= now < end if start <= end else now >= start or now < end
