"""Runs the scheduled phases in one process: a backup, the check, pruning, and copies elsewhere.

    create ─▶ verify ─ good ─▶ prune ─▶ upload        a phase that failed is tried again later
                     ─ inconclusive ─▶ upload
                     ─ bad ─▶ nothing

Once a day, a kept backup is verified again.

The backups determine the remaining phases, so a run neither repeats nor forgets a phase that an
earlier run did not reach.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial

from appliance.backup import keys, prune
from appliance.backup.backup_directory import (
    BackupWorkspace,
    ListedBackup,
    newest_of,
    writing,
)
from appliance.backup.create import create_backup
from appliance.backup.errors import VerificationFailed
from appliance.backup.failures import Attempts
from appliance.backup.keys import Identities
from appliance.backup.manifest import VERIFICATION, Verification
from appliance.backup.order import FUTURE_MS
from appliance.backup.schedule import NICENESS
from appliance.kernel.clock import DAY_MS

RECHECK_MS = DAY_MS  # bytes on a disk can change, so each day a kept backup is verified again
Verify = Callable[[str, Identities | None], Verification]


def run(
    work: BackupWorkspace,
    *,
    create: bool,
    recheck: bool,
    verify: Verify,
    upload: Callable[[], object],
) -> Attempts:
    """Make a backup, if `create`, and finish the newest one's remaining steps. With `recheck`, also
    verify an older one.

    A backup that is not proven good never displaces another one, and a bad one is not uploaded.
    Raises BackupRunning.
    """
    _, settings, backups, clock = work
    attempts, own_key = Attempts(work), None
    with ExitStack() as writer:
        if create:
            with attempts.record("create"):
                writer.enter_context(backups.only_writer())
                own_key = keys.single_use(settings)
                # Nice after the cut only: before, it keeps the stores from writing.
                yielding = partial(os.nice, NICENESS)
                create_backup(work, reason="schedule", after_cut=yielding, also_for=own_key)
        else:
            writer.enter_context(backups.only_writer())
        newest = newest_of(backups.list(), clock.now_ms())
        if "create" in attempts.failed or newest is None or newest.manifest is None:
            return attempts
        result, scheduled = newest.result, newest.manifest.reason == "schedule"
        if scheduled and settings.verify and result is None:
            with attempts.record("verify"):
                verification = verify(newest.name, own_key or keys.load(settings))
                result = verification.result
                _raise_bad(newest, verification)
        if scheduled and result == ("good" if settings.verify else None):
            with attempts.record("prune"):
                prune.prune(work)
        is_sound = result != "bad" and "verify" not in attempts.failed
        if recheck and settings.verify and is_sound:
            with attempts.record("verify"):
                _recheck(work, newest, verify)
    if settings.targets and is_sound:
        with attempts.record("upload"):
            upload()
    return attempts


def next_recheck(
    backups: Iterable[ListedBackup], newest: ListedBackup, now_ms: int
) -> ListedBackup | None:
    """Return the kept backup with the oldest check, at least a day ago. A check without a result
    counts for the order: backups without a key must not hide later ones."""
    kept = [
        listed
        for listed in backups
        if listed.manifest is not None and listed.result != "bad" and listed.name != newest.name
        if not now_ms - RECHECK_MS <= listed.proven_ms <= now_ms + FUTURE_MS
    ]
    return min(kept, key=_checked_ns, default=None)


def _recheck(work: BackupWorkspace, newest: ListedBackup, verify: Verify) -> None:
    oldest = next_recheck(work.backups.list(), newest, work.clock.now_ms())
    if oldest is not None:
        verification = verify(oldest.name, keys.load(work.settings))
        with writing():
            os.utime(oldest.path / VERIFICATION)
        _raise_bad(oldest, verification)


def _checked_ns(listed: ListedBackup) -> int:
    file = listed.path / VERIFICATION
    return file.stat().st_mtime_ns if file.exists() else 0


def _raise_bad(listed: ListedBackup, verification: Verification) -> None:
    if verification.result == "bad":
        raise VerificationFailed(f"{listed.name}: {verification.problems[0]}")
