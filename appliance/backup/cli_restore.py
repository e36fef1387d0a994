"""Implements `agentlip backup restore`: the restore, and the plan for a restore."""

from pathlib import Path
from typing import Annotated, Any

import typer

from appliance.backup.backup_directory import ListedBackup
from appliance.backup.cli_opened import open_workspace, show_progress
from appliance.cli_support import Session, plain
from appliance.kernel.errors import Invalid
from appliance.workspace.datadir import DataDir

BackupArgument = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="A backup that `agentlip backup list` shows."),
]
LatestFlag = Annotated[
    bool, typer.Option("--latest", help="The newest backup, except those made before a restore.")
]
PlanFlag = Annotated[
    bool, typer.Option("--plan", help="Only show what would be replaced, kept and lost.")
]
YesFlag = Annotated[bool, typer.Option("--yes", help="Confirm. Without it nothing is changed.")]
IntoFlag = Annotated[
    Path | None, typer.Option("--into", help="Restore into this new, empty directory.")
]
StoreFlag = Annotated[
    list[str] | None, typer.Option("--store", help="Restore only this store; may be repeated.")
]
ReviveFlag = Annotated[
    bool,
    typer.Option(
        "--revive", help="Also bring back tokens, members and secrets that were revoked since."
    ),
]
IdentityFlag = Annotated[
    Path | None,
    typer.Option("--identity", help="File with the age key (default: backup.identity_file)."),
]
LINES_OF_KIND = {
    "lost": "lost",
    "lost-delivered": "lost here, and delivered before",
    "still-revoked": "stays revoked",
    "valid-again": "valid again",
    "sent-again": "delivered again",
}


def restore(
    session: Session,
    name: BackupArgument = None,
    latest: LatestFlag = False,
    plan: PlanFlag = False,
    yes: YesFlag = False,
    into: IntoFlag = None,
    store: StoreFlag = None,
    revive: ReviveFlag = False,
    identity: IdentityFlag = None,
) -> None:
    """Put a backup in the place of the present state, or into a new directory.

    Only while the appliance is stopped. The present state is backed up first, and the answer
    names that backup. Rows that are newer than the restored backup are lost, and listed. Tokens
    and members that were revoked since stay revoked. Clients notice a new epoch.

    Example: agentlip backup restore --latest --plan
    """
    from appliance.backup import keys
    from appliance.backup import restore as verbs
    from appliance.backup.restore_job import RestoreJob

    if latest == (name is not None):
        raise Invalid(
            "name one backup, or take the newest",
            hint="agentlip backup list; agentlip backup restore --latest --plan",
        )
    if store and (into is not None or revive):
        raise Invalid(
            "--store replaces this workspace's stores, so --into and --revive can't be used",
            hint="agentlip backup restore --help",
        )
    work = open_workspace(session)
    manifest = work.backups.read(name or work.backups.newest(_is_wanted))
    target = work.datadir if into is None else DataDir(into.expanduser().resolve())
    job = RestoreJob(work, manifest, target, tuple(store or ()), into is not None, revive)
    identities, progress = keys.load(work.settings, identity), show_progress(session, work.clock)
    if yes and not plan:
        done = verbs.apply(job, identities, progress=progress)
        lines = [*_notice_lines(done.plan), *_result_lines(done)]
        session.answer(done, "\n".join(map(plain, lines)))
        if job.new:
            session.note("both directories have the same tokens and member key: don't run both")
        return
    planned = verbs.plan(job, identities, progress)
    session.answer(planned, "\n".join(map(plain, _plan_lines(planned))))
    if not plan:
        raise Invalid("nothing was changed: confirm the restore", hint="--yes")


def _is_wanted(listed: ListedBackup) -> bool:
    """Return whether the backup is undamaged as far as known, and was not made by a restore."""
    manifest = listed.manifest
    return manifest is not None and manifest.reason != "before-restore" and listed.result != "bad"


def _plan_lines(planned: Any) -> list[str]:
    lines = [f"backup {planned.name} of {planned.cut_at} → {planned.workspace}"]
    lines += [f"would replace {path}" for path in planned.replaced]
    lines += [f"would add {path}" for path in planned.added]
    lines += [f"would remove {path}" for path in planned.removed]
    lines += [f"would keep {path}" for path in planned.kept]
    lines += [
        f"would change the setting {setting.name}: {setting.before} → {setting.after}"
        for setting in planned.settings
    ]
    lines += [
        f"the next start migrates {name}: {step}" for name, step in planned.migrations.items()
    ]
    if planned.first_event_id:
        lines.append(
            f"a new epoch follows {planned.old_epoch}; event ids continue at"
            f" {planned.first_event_id}"
        )
    lines += _notice_lines(planned)
    lines.append(f"needs {planned.bytes_needed:,} bytes; {planned.bytes_free:,} are free")
    if planned.running:
        lines.append("the appliance runs; stop it first: agentlipd down")
    return lines


def _notice_lines(planned: Any) -> list[str]:
    lines = []
    for notice in planned.notices:
        names = ", ".join(key if key == text else f"{key} ({text})" for key, text in notice.first)
        more = ", …" if notice.count > len(notice.first) else ""
        lines.append(
            f"{LINES_OF_KIND[notice.kind]}: {notice.count} {notice.noun} in {notice.store}:"
            f" {names}{more}"
        )
    for store in planned.uncompared:
        lines.append(
            f"the present {store} can't be read, so its losses and revocations are not known"
        )
    return lines


def _result_lines(done: Any) -> list[str]:
    planned, lines = done.plan, []
    rows = sum(sum(tables.values()) for tables in done.rows.values())
    lines.append(
        f"restored {planned.name} of {planned.cut_at}: {len(done.rows)} stores with {rows} rows,"
        " counted and equal to the backup"
    )
    if planned.epoch:
        lines.append(
            f"epoch {planned.old_epoch} → {planned.epoch}; event ids continue at"
            f" {planned.first_event_id}"
        )
    if done.kept_as:
        lines.append(f"the state before was too damaged for a backup; its files: {done.kept_as}")
    if done.safety:
        lines.append(f"the state before is backup {done.safety}; to undo: {done.undo}")
    return lines
