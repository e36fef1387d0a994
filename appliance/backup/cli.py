"""`agentlip backup`: makes backups, lists them, and shows what they contain."""

import os
from functools import partial
from typing import Annotated, Any

import msgspec
import typer

from appliance.backup import cli_prune, cli_restore, cli_targets, cli_verify
from appliance.backup.backup_directory import ListedBackup
from appliance.backup.cli_opened import open_workspace, progress, size
from appliance.backup.manifest import BackupManifest
from appliance.backup.schedule import NICENESS
from appliance.cli_support import Session, note, plain_app

app = plain_app(
    "Backups of the whole workspace: create, verify, prune, restore, copies elsewhere.\n\n"
    "Exit codes: 0 success, 1 error, 10 no such backup, 11 damaged, 12 another process works on"
    " the backups, 13 can't be written, 14 no common cut in time, 15 wrong key, 16 newer version,"
    " 17 not verified, 18 a target failed, 19 a store can't be copied, 20 a recipient can't be"
    " used, 21 a library is missing, 22 a target refused, 23 not encrypted, 24 only some were"
    " copied, 25 it can't be restored here, 26 a check could not be finished.",
    "Administration/backup",
)
app.command("restore")(cli_restore.restore)
app.command("targets")(cli_targets.targets)
app.command("upload")(cli_targets.upload)
app.command("fetch")(cli_targets.fetch)
app.command("verify")(cli_verify.verify)
app.command("prune")(cli_prune.prune)

_COLUMNS = (
    ("NAME", "name"),
    ("CREATED", "created_at"),
    ("REASON", "reason"),
    ("SIZE", "size"),
    ("MESSAGES", "messages"),
    ("VERIFIED", "verified"),
    ("ENCRYPTED", "encrypted"),
    ("PROBLEM", "problem"),
)


@app.command("create")
def create(
    session: Session,
    scheduled: Annotated[
        bool, typer.Option("--scheduled", help="Record that the schedule asked for it.")
    ] = False,
) -> None:
    """Back up the whole workspace, also while the appliance runs: agentlip backup create

    If it is encrypted and its secret key is not here, it is verified at once, while this process
    has a key for it.
    """
    from appliance.backup import keys
    from appliance.backup.create import create_backup

    work = open_workspace(session)
    own_key = keys.single_use(work.settings)
    with work.backups.only_writer():
        manifest = create_backup(
            work.datadir,
            work.backups,
            work.settings,
            reason="schedule" if scheduled else "manual",
            clock=work.clock,
            tell=progress(session, work.clock),
            # Only then: before, it keeps the stores from writing.
            after_cut=partial(os.nice, NICENESS) if scheduled else None,
            also_for=own_key,
        )
        if own_key is not None:
            cli_verify.verify_at_once(session, work, manifest.name, own_key)
    count = messages(manifest)
    for store, facts in manifest.stores.items():
        if facts.missing_blobs:
            note(f"{store}: missing or damaged files that its rows name: {facts.missing_blobs}")
    session.answer(
        summary(manifest),
        f"{manifest.name}: {count:,} {'message' if count == 1 else 'messages'},"
        f" {size(manifest.stored_bytes)} in {manifest.seconds:.1f} s;"
        f" writers paused for {manifest.pause_ms:.1f} ms",
    )


@app.command("list")
def list_backups(session: Session) -> None:
    """List all backups, oldest first, with those that can't be read."""
    rows = [row(backup, session.machine) for backup in open_workspace(session).backups.list()]
    columns = [
        column
        for column in _COLUMNS
        if column[1] != "problem" or any(row["problem"] for row in rows)
    ]
    session.table(rows, columns, "no backups: agentlip backup create")


@app.command("show")
def show(
    session: Session,
    name: Annotated[str | None, typer.Argument(help="The backup (default: the newest).")] = None,
) -> None:
    """Show the manifest of a backup: its cut, stores, rows and files."""
    work = open_workspace(session)
    wanted = name or work.backups.newest()
    manifest = work.backups.read(wanted)
    verification = work.backups.verification(wanted)
    if session.machine:
        answer = msgspec.to_builtins(manifest)
        answer["verification"] = msgspec.to_builtins(verification)
        session.answer(answer, "")
        return
    checked = (
        "never" if verification is None else f"{verification.result} {verification.checked_at}"
    )
    lines = [
        f"name        {manifest.name}",
        f"cut         {manifest.cut_at} ({manifest.reason}; paused {manifest.pause_ms:.1f} ms)",
        f"workspace   {manifest.db_id}, epoch {manifest.epoch}",
        f"version     {manifest.app_version}",
        f"last event  {manifest.last_event_id}",
        f"verified    {checked}",
        f"encrypted   {', '.join(manifest.recipients) or 'no'}",
    ]
    for store, facts in sorted(manifest.stores.items()):
        rows = ", ".join(f"{table} {count:,}" for table, count in sorted(facts.rows.items()))
        lines.append(f"store       {store}, schema {facts.schema}: {rows}")
    for file in manifest.files:
        lines.append(f"file        {file.name}: {size(file.stored_bytes)}, {file.path}")
    session.answer({}, "\n".join(lines))


def summary(manifest: BackupManifest) -> dict[str, Any]:
    """What `create` and `list` say of a backup."""
    return {
        "name": manifest.name,
        "created_at": manifest.created_at,
        "cut_at": manifest.cut_at,
        "reason": manifest.reason,
        "bytes": manifest.bytes,
        "stored_bytes": manifest.stored_bytes,
        "messages": messages(manifest),
        "last_event_id": manifest.last_event_id,
        "encrypted": manifest.encrypted,
        "seconds": manifest.seconds,
        "pause_ms": manifest.pause_ms,
    }


def row(listed: ListedBackup, machine: bool) -> dict[str, Any]:
    """A backup as a row of the list; for people without the fields for programs."""
    result = listed.result
    if listed.manifest is None:
        return {"name": listed.name, "verified": result, "problem": listed.problem}
    values = summary(listed.manifest) | {"verified": result, "problem": listed.problem or None}
    if not machine:
        values["size"] = size(listed.manifest.stored_bytes)
        values["encrypted"] = "yes" if listed.manifest.encrypted else "no"
        values["verified"] = result or "never"
    return values


def messages(manifest: BackupManifest) -> int:
    """The number of messages in the hub's store."""
    hub = manifest.stores.get("hub")
    return 0 if hub is None else hub.rows.get("messages", 0)
