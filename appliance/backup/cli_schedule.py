"""`agentlip backup schedule`: what is backed up when, what is kept, and what failed."""

from datetime import datetime
from typing import Any

import msgspec

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.catalogue import BackupCatalogue, BackupFacts
from appliance.backup.cli_opened import open_workspace
from appliance.backup.failures import read_failures
from appliance.backup.first_data import has_data
from appliance.backup.schedule import ScheduleFacts, due_in_seconds
from appliance.backup.settings import BackupSettings
from appliance.cli_support import Session, write_line
from appliance.kernel.clock import iso
from appliance.workspace.datadir import STORES, DataDir, read_lock

KEPT = ("last", "hourly", "daily", "weekly", "monthly", "yearly")


def show_schedule(session: Session) -> None:
    """Show when backups are made, what is kept, and what failed. Also works while stopped."""
    work = open_workspace(session)
    answer = schedule_of(work.datadir, work.settings, work.clock.now_ms())
    if session.machine:
        session.answer(answer, "")
        return
    for line in _lines(answer, work.settings):
        write_line(line)


def schedule_of(datadir: DataDir, settings: BackupSettings, now_ms: int) -> dict[str, Any]:
    """The answer with --json. Times are in UTC; `next_at`: None without a plan."""
    catalogue = BackupCatalogue(BackupDirectory(datadir, settings))
    backups = catalogue.refresh()
    newest = catalogue.newest(now_ms)
    next_ms = _next_ms(datadir, settings, newest, now_ms)
    return {
        "enabled": settings.enabled,
        "running": read_lock(datadir).held,
        "every_seconds": settings.every_seconds,
        "first_seconds": settings.first_seconds,
        "verify": settings.verify,
        "last_at": None if newest is None else newest.row.cut_at,
        "last": None if newest is None else newest.name,
        "last_verification": None if newest is None else newest.result,
        "next_at": None if next_ms is None else iso(next_ms),
        "backups": len(backups),
        "directory": str(datadir.workspace / settings.directory),
        "keep": {kind: getattr(settings, f"keep_{kind}") for kind in KEPT},
        "encrypted": bool(settings.recipients),
        "targets": [{"name": target.name, "url": target.url} for target in settings.targets],
        "failures": msgspec.to_builtins(read_failures(datadir.backups)),
    }


def _next_ms(
    datadir: DataDir, settings: BackupSettings, newest: BackupFacts | None, now_ms: int
) -> int | None:
    if not settings.enabled:
        return None
    backup_age = data_age = None
    if newest is not None:
        backup_age = (now_ms - newest.cut_ms) / 1000
    elif has_data(datadir, STORES):
        data_age = 0.0
    due = due_in_seconds(settings, ScheduleFacts(backup_age, data_age))
    return None if due is None else now_ms + int(max(0.0, due) * 1000)


def _lines(answer: dict[str, Any], settings: BackupSettings) -> list[str]:
    kept = ", ".join(f"{count} {kind}" for kind, count in answer["keep"].items() if count)
    targets = ", ".join(f"{target['name']} ({target['url']})" for target in answer["targets"])
    checked = {None: "not verified", "good": "verified", "bad": "verification failed"}
    last = answer["last"] and (
        f"{_local(answer['last_at'])}, {answer['last']},"
        f" {checked.get(answer['last_verification'], 'verification inconclusive')}"
    )
    rows = [
        ("schedule", _every(settings) if settings.enabled else "off (backup.enabled = false)"),
        ("last", last or "none yet"),
        ("next", _next(answer)),
        ("keeps", kept or "everything"),
        ("directory", f"{answer['directory']} (backups: {answer['backups']})"),
        ("encrypted", "yes" if answer["encrypted"] else "no (backup.recipients is empty)"),
        ("targets", targets or "none (backup.targets is empty)"),
        *(
            ("failed", f"{failure['phase']} at {_local(failure['failed_at'])}: {failure['error']}")
            for failure in answer["failures"]
        ),
    ]
    return [
        *(f"{name:<10} {text}" for name, text in rows),
        "",
        "To change it, set values under [backup] in agentlip.toml, then: agentlipd restart",
    ]


def _every(settings: BackupSettings) -> str:
    seconds = settings.every_seconds
    units = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
    size, unit = next(
        ((size, unit) for size, unit in units if seconds >= size and seconds % size == 0),
        (1, "second"),
    )
    count = f"{seconds / size:g} {unit}s" if seconds != size else unit
    return f"every {count}, {'verified' if settings.verify else 'not verified'}"


def _next(answer: dict[str, Any]) -> str:
    if not answer["enabled"]:
        return "none"
    if answer["next_at"] is None:
        return f"{answer['first_seconds']:g} s after the first message"
    suffix = "" if answer["running"] else ", if the appliance runs: agentlipd up"
    return _local(answer["next_at"]) + suffix


def _local(text: str) -> str:
    """A time of `iso` in the local zone, to the second."""
    moment = datetime.fromisoformat(text).astimezone()
    return moment.isoformat(sep=" ", timespec="seconds")
