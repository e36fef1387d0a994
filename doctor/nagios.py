"""The verdict as one line of a Nagios plugin: state, text, and performance data.

    AGENTLIP WARNING - store.wal: hub: the write-ahead log has … | warnings=1;… errors=0;…

Exit codes are those of Nagios' guidelines for plugins, not those of `agentlip doctor`.
"""

import os
from collections.abc import Iterator, Sequence

from appliance.checks.check import Finding, Severity
from appliance.checks.context import Context
from doctor.checks.host import free_bytes_min
from doctor.checks.store_log import ERROR_BYTES as WAL_ERROR_BYTES
from doctor.checks.store_log import log_bytes
from doctor.run import CheckOutcome, worst

OK, WARNING, CRITICAL, UNKNOWN = range(4)
_STATES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_CODES = {
    None: OK,
    Severity.INFO: OK,
    Severity.WARNING: WARNING,
    Severity.ERROR: CRITICAL,
    Severity.CRITICAL: CRITICAL,
}
_SHOWN_MAX = 3
_TEXT_CHARS_MAX = 1000


def line(context: Context, outcomes: Sequence[CheckOutcome]) -> tuple[str, int]:
    """The line and the exit code."""
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    code = _CODES[worst(findings)]
    data = " ".join(_performance(context, outcomes, findings))
    return f"AGENTLIP {_STATES[code]} - {_text(findings, len(outcomes))} | {data}", code


def unknown(message: str) -> str:
    """The line if the checks could not run."""
    return f"AGENTLIP {_STATES[UNKNOWN]} - {_clean(message)}"


def _text(findings: Sequence[Finding], checks: int) -> str:
    problems = [finding for finding in findings if finding.severity.rank > Severity.INFO.rank]
    if not problems:
        return f"{checks} checks, no problems"
    problems.sort(key=lambda each: (bool(each.explained_by), -each.severity.rank))
    texts = [
        f"{problem.check}: {problem.subject}: {problem.message}"
        for problem in problems[:_SHOWN_MAX]
    ]
    more = len(problems) - len(texts)
    return _clean("; ".join(texts)) + (f"; and {more} more" if more else "")


def _performance(
    context: Context, outcomes: Sequence[CheckOutcome], findings: Sequence[Finding]
) -> Iterator[str]:
    """`name=value[unit];warning;critical;min;max` for each measure."""
    severities = [finding.severity for finding in findings]
    errors = severities.count(Severity.ERROR) + severities.count(Severity.CRITICAL)
    yield f"warnings={severities.count(Severity.WARNING)};0;;0"
    yield f"errors={errors};;0;0"
    yield f"seconds={sum(outcome.seconds for outcome in outcomes):.3f}s;;;0"
    limits = context.settings
    databases = map(context.datadir.database, context.stores)
    wal = max(map(log_bytes, databases), default=0)
    yield f"wal={wal}B;{limits.wal_warning_bytes};{WAL_ERROR_BYTES};0"
    volume = os.statvfs(context.datadir.dir)
    total = volume.f_blocks * volume.f_frsize
    if total:  # some network mounts report no size
        error, warning = free_bytes_min(limits, total)
        free = volume.f_bavail * volume.f_frsize
        yield f"free={free}B;{int(warning)}:;{int(error)}:;0;{total}"


def _clean(text: str) -> str:
    """One line without `|`, which begins the performance data."""
    text = " ".join(text.replace("|", "/").split())
    return text if len(text) <= _TEXT_CHARS_MAX else text[: _TEXT_CHARS_MAX - 1] + "…"
