"""Checks that backups are recent, verified and undamaged, that the next one has space, and that
no restore is unfinished."""

import os
import shlex
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from appliance.backup.backup_directory import BackupDirectory, ListedBackup, newest_of
from appliance.backup.errors import BackupDamaged
from appliance.backup.failures import read_failures
from appliance.backup.first_data import has_data
from appliance.backup.manifest import BackupManifest, Verification
from appliance.backup.order import is_future
from appliance.backup.schedule import interval_seconds
from appliance.backup.settings import BackupSettings
from appliance.backup.unpack import check_hashes
from appliance.checks.check import Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.sections import section
from appliance.kernel.clock import HOUR_MS
from appliance.workspace import swap
from appliance.workspace.datadir import SHARED_STORES, STORES

CREATE = "agentlip backup create"
VERIFY = "agentlip backup verify --latest"
PRUNE = "agentlip backup prune"
REPEAT = {
    "create": CREATE,
    "verify": VERIFY,
    "prune": f"{PRUNE} --yes",
    "upload": "agentlip backup upload",
}
FILES_MAX = 10_000  # file sizes that one check compares
_MIB = 1024 * 1024


def _backups(context: Context) -> tuple[BackupSettings, BackupDirectory]:
    settings = section(context.datadir.settings_file, "backup", BackupSettings) or BackupSettings()
    return settings, BackupDirectory(context.datadir, settings, context.clock)


def _age(context: Context) -> Iterator[Finding]:
    settings, backups = _backups(context)
    if not settings.enabled:
        yield OFF.finding("schedule", "no backups are made on a schedule (backup.enabled = false)")
        return
    now_ms, listed_backups = context.clock.now_ms(), backups.list()
    for listed in listed_backups:
        if is_future(listed.cut_ms, now_ms):
            hours = (listed.cut_ms - now_ms) / HOUR_MS
            sentence = f"its time is {hours:.1f} hours ahead of the clock, so the age is unknown"
            yield FUTURE.finding(listed.name, sentence)
    newest = newest_of(listed_backups, now_ms)
    took, asked = 0.0 if newest is None else newest.seconds, settings.every_seconds
    interval = interval_seconds(settings, took)
    if asked != BackupSettings().every_seconds and asked < interval:
        sentence = f"a backup takes {took:.1f} s, so one is made every {interval / 3600:.1f} hours"
        yield SLOWER.finding("backup.every_seconds", sentence)
    limit = settings.age_warning_seconds
    age = _workspace_age(context) if newest is None else (now_ms - newest.cut_ms) / 1000
    if age <= limit:
        return
    if newest is not None:
        sentence = f"the newest backup is {age / 3600:.0f} hours old"
        yield OLD.finding(newest.name, sentence)
    elif not context.number("backup.due_seconds") and has_data(context.datadir, context.stores):
        sentence = "this workspace has no backup"
        yield NONE.finding("workspace", sentence)


def _workspace_age(context: Context) -> float:
    """Return the seconds since the first start, which made the token; 0 before the first start."""
    try:
        made = context.datadir.token_file.stat().st_mtime
    except OSError:
        return 0.0
    return context.clock.now_ms() / 1000 - made


def _verified(context: Context) -> Iterator[Finding]:
    settings, backups = _backups(context)
    now_ms = context.clock.now_ms()
    readable = [listed for listed in backups.list() if listed.manifest is not None]
    checked = [
        (listed, listed.verification) for listed in readable if listed.verification is not None
    ]
    bad = [(listed, last) for listed, last in checked if last.result == "bad"]
    if bad:
        yield from (_bad(listed, verification) for listed, verification in bad)
        return
    if not (settings.enabled and settings.verify and readable):
        return
    times = [
        datetime.fromisoformat(verification.checked_at).timestamp()
        for _, verification in checked
        if verification.result == "good"
    ]
    times = [moment for moment in times if not is_future(int(moment * 1000), now_ms)]
    proven = max(times, default=None)
    failed = [(listed, last) for listed, last in checked if last.problems]
    if proven is None and failed:
        listed, verification = failed[-1]
        sentence = f"no backup was ever verified: {verification.problems[0]}"
        yield UNPROVEN.finding(listed.name, sentence)
        return
    since = readable[0].cut_ms / 1000 if proven is None else proven
    if now_ms / 1000 - since > settings.age_warning_seconds:
        sentence = (
            "no backup has been verified"
            if proven is None
            else f"no backup has been verified since {_day(proven)}"
        )
        yield UNPROVEN.finding(readable[-1].name, sentence)


def _bad(listed: ListedBackup, verification: Verification) -> Finding:
    sentence = "this backup restores to other content than recorded"
    if verification.problems:
        sentence += f": {verification.problems[0]}"
    hint = f"{CREATE} && {VERIFY} && {_move_aside(listed.path)}"
    return BAD.finding(listed.name, sentence, hint)


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().date().isoformat()


def _failures(context: Context) -> Iterator[Finding]:
    settings, _ = _backups(context)
    if not settings.enabled:
        return
    for failure in read_failures(context.datadir.backups, settings):
        if failure.phase == "verify" and failure.code == "BACKUP_VERIFICATION_FAILED":
            continue  # backup.verified reports the backup
        sentence = f"failed at {failure.failed_at}: {failure.error}"
        yield FAILING.finding(failure.phase, sentence, REPEAT[failure.phase])


def _whole(context: Context) -> Iterator[Finding]:
    """Read manifests and compare sizes; a verification reads the content."""
    _, backups = _backups(context)
    left = FILES_MAX
    for listed in reversed(backups.list()):
        if listed.manifest is None:
            yield BACKUP_UNREADABLE.finding(listed.name, listed.problem, _aside(listed))
        elif left > 0:
            left -= len(listed.manifest.files)
            yield from _files(listed, listed.manifest)


def _files(listed: ListedBackup, manifest: BackupManifest) -> Iterator[Finding]:
    """Yield the first file that is missing or has another size."""
    for file in manifest.files:
        try:
            size = (listed.path / file.name).stat().st_size
        except FileNotFoundError:
            size = -1
        except OSError:
            return  # host.owner reports what can't be read
        if size != file.stored_bytes:
            reason = "is missing" if size < 0 else f"has {size:,} bytes, not {file.stored_bytes:,}"
            yield INCOMPLETE.finding(listed.name, f"its file {file.name} {reason}", _aside(listed))
            return


def _content(context: Context) -> Iterator[Finding]:
    """Yield each backup's first file with changed stored bytes. Missing files and files with
    another size are found without reading."""
    _, backups = _backups(context)
    for listed in reversed(backups.list()):
        if listed.manifest is None or any(_files(listed, listed.manifest)):
            continue
        try:
            check_hashes(listed.path, listed.manifest)
        except BackupDamaged as error:
            yield DAMAGED.finding(listed.name, error.message, _aside(listed))


def _aside(listed: ListedBackup) -> str:
    """Return the commands that make another backup and keep the remains of this one."""
    return f"{CREATE} && {_move_aside(listed.path)}"


def _move_aside(path: Path) -> str:
    quoted = shlex.quote(str(path))
    return f"mv {quoted} {quoted}.damaged"


def _unfinished_restore(context: Context) -> Iterator[Finding]:
    """Yield a finding, but not while a process holds the lock, because that process may be
    restoring."""
    if not swap.is_pending(context.datadir) or context.lock().held:
        return
    try:
        swap.read(context.datadir)
    except swap.SwapUnreadable as error:
        yield UNFINISHED_RESTORE_UNREADABLE.finding(swap.FILE, error.message, error.hint)
        return
    sentence = "a restore was interrupted; the next start finishes or undoes it"
    yield INTERRUPTED.finding(swap.FILE, sentence)


def _space(context: Context) -> Iterator[Finding]:
    settings, backups = _backups(context)
    if not settings.enabled:
        return
    stores = (*STORES, *SHARED_STORES)
    needed = sum(map(context.datadir.store_bytes, stores)) + settings.free_bytes_min
    folder = backups.root if backups.root.is_dir() else context.datadir.dir
    try:
        volume = os.statvfs(folder)
    except OSError:
        return
    free = volume.f_bavail * volume.f_frsize
    total = volume.f_blocks * volume.f_frsize
    if total and free < needed:
        # A disk this small never has the reserve, by its setup.
        small = total < 2 * settings.free_bytes_min
        yield NO_SPACE.finding(
            "backup.free_bytes_min" if small else "disk",
            f"the next backup needs {needed / _MIB:,.0f} MiB, and {free / _MIB:,.0f} MiB are free",
            severity=Severity.INFO if small else Severity.WARNING,
        )


OFF = Problem("off", Severity.INFO, hint=CREATE)
NONE = Problem("none", hint=CREATE)
SLOWER = Problem("slower", Severity.INFO, hint="agentlip jobs list")
OLD = Problem("old", hint=CREATE)
FUTURE = Problem("future", Severity.INFO, hint="date; agentlip backup create")
BAD = Problem("bad", Severity.ERROR)
UNPROVEN = Problem("unproven", hint=VERIFY)
FAILING = Problem("failing")
BACKUP_UNREADABLE = Problem("unreadable", Severity.ERROR)
INCOMPLETE = Problem("incomplete", Severity.ERROR)
DAMAGED = Problem("damaged", Severity.ERROR)
INTERRUPTED = Problem("interrupted", Severity.ERROR, hint="agentlipd up")
UNFINISHED_RESTORE_UNREADABLE = Problem("unreadable", Severity.ERROR)
NO_SPACE = Problem("no-space", hint=PRUNE)
CHECKS = (
    Check(
        name="backup.age", inspects="there is a backup that is young enough", find=_age,
        problems=(OFF, NONE, OLD, FUTURE, SLOWER),
    ),
    Check(
        name="backup.verified", inspects="the newest verification succeeded, and is not old",
        find=_verified, problems=(BAD, UNPROVEN),
    ),
    Check(
        name="backup.failures", inspects="the last attempt at each backup phase succeeded",
        find=_failures, problems=(FAILING,),
    ),
    Check(
        name="backup.whole", inspects="all backups are complete, as far as names and sizes show",
        find=_whole, problems=(BACKUP_UNREADABLE, INCOMPLETE),
    ),
    Check(
        name="backup.content", inspects="every kept backup has the bytes that were written",
        find=_content, cost=Cost.EXPENSIVE, problems=(DAMAGED,),
    ),
    Check(
        name="backup.unfinished-restore", inspects="no restore was interrupted",
        find=_unfinished_restore, problems=(INTERRUPTED, UNFINISHED_RESTORE_UNREADABLE),
    ),
    Check(
        name="backup.space", inspects="the disk has space for the next backup", find=_space,
        problems=(NO_SPACE,),
    ),
)  # fmt: skip
