"""What follows on the schedule, in one process: a backup, its check, pruning, and copies elsewhere.

    create ─▶ verify ─ good ─▶ prune ─▶ upload        a phase that failed is tried again later
                     ─ inconclusive ─▶ upload
                     ─ bad ─▶ nothing

The phases that are left follow from the backups themselves, so a run neither repeats nor forgets a
phase that an earlier one did not reach.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from appliance.backup import keys, prune
from appliance.backup.backup_directory import BackupWorkspace, newest_of
from appliance.backup.create import create_backup
from appliance.backup.errors import VerificationFailed
from appliance.backup.failures import Attempts
from appliance.backup.keys import Identities
from appliance.backup.manifest import Verification
from appliance.backup.schedule import NICENESS

Verify = Callable[[str, Identities | None], Verification]


def run(
    work: BackupWorkspace,
    *,
    create: bool,
    verify: Verify,
    upload: Callable[[], object],
) -> Attempts:
    """Makes a backup, if `create`, and does what the newest one still needs.

    A backup that is not proven good never pushes out another one, and a bad one is not uploaded.
    Raises BackupRunning.
    """
    datadir, settings, backups, clock = work
    attempts, own_key = Attempts(datadir.backups, clock), None
    with ExitStack() as writer:
        if create:
            with attempts.of("create"):
                writer.enter_context(backups.only_writer())
                own_key = keys.single_use(settings)
                create_backup(
                    datadir, backups, settings, reason="schedule", clock=clock,
                    # Only then: before, it keeps the stores from writing.
                    after_cut=partial(os.nice, NICENESS), also_for=own_key,
                )  # fmt: skip
        else:
            writer.enter_context(backups.only_writer())
        newest = newest_of(backups.list(), clock.now_ms())
        if "create" in attempts.failed or newest is None or newest.manifest is None:
            return attempts
        result, scheduled = newest.result, newest.manifest.reason == "schedule"
        if scheduled and settings.verify and result is None:
            with attempts.of("verify"):
                verification = verify(newest.name, own_key or keys.load(settings))
                result = verification.result
                if result == "bad":
                    problem = verification.problems[0]
                    raise VerificationFailed(f"{newest.name}: {problem}")
        if scheduled and result == ("good" if settings.verify else None):
            with attempts.of("prune"):
                prune.prune(backups, settings, clock)
    if settings.targets and result != "bad" and "verify" not in attempts.failed:
        with attempts.of("upload"):
            upload()
    return attempts
