"""Implements `agentlip backup`: makes backups, lists them, and shows the content."""

from typing import Annotated, Any

import msgspec
import typer

from appliance.backup import cli_prune, cli_restore, cli_targets, cli_verify
from appliance.backup.backup_directory import ListedBackup
from appliance.backup.cli_opened import open_workspace, show_progress, size
from appliance.cli_support import Session, note, plain, plain_app

app = plain_app(
    "Workspace backups: create, verify, prune, restore, copies elsewhere.\n\n"
    "Exit codes: 0 success, 1 error, 10 no such backup, 11 damaged, 12 another process works on"
    " the backups, 13 can't be written, 14 stores too busy, 15 wrong key, 16 newer version,"
    " 17 not verified, 18 a target failed, 19 a store can't be copied, 20 a recipient can't be"
    " used, 21 a library is missing, 22 a target refused, 23 not encrypted, 25 can't be "
    "restored here, 26 a check could not be finished.",
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
    ("SIZE", lambda row: size(row["stored_bytes"])),
    ("VERIFIED", "verified"),
    ("ENCRYPTED", lambda row: "yes" if row["encrypted"] else "no"),
    ("PROBLEM", "problem"),
)


@app.command("create")
def create(session: Session) -> None:
    """Back up the whole workspace, also while the appliance runs.

    An encrypted backup whose secret key is elsewhere is verified at once, because only this process
    can open it.

    Example: agentlip backup create
    """
    from appliance.backup import keys
    from appliance.backup.create import create_backup
    from appliance.backup.failures import end_failure
    from appliance.backup.store_copy import count_nouns

    work = open_workspace(session)
    own_key = keys.single_use(work.settings)
    with work.backups.only_writer():
        progress = show_progress(session, work.clock)
        manifest = create_backup(work, reason="manual", progress=progress, also_for=own_key)
        if own_key is not None:
            cli_verify.verify_at_once(session, work, manifest.name, own_key)
    end_failure(work, "create")
    counts = count_nouns(manifest.stores)
    counted = ", ".join(f"{count:,} {noun}{'s' * (count != 1)}" for noun, count in counts.items())
    for store, facts in manifest.stores.items():
        if facts.missing_blobs:
            note(f"{store}: missing or damaged files that its rows name: {facts.missing_blobs}")
    session.answer(
        row(work.backups.describe(manifest.name))
        | {f"{noun}s": count for noun, count in counts.items()},
        f"{manifest.name}: {counted}, {size(manifest.stored_bytes)} in {manifest.seconds:.1f} s;"
        f" writers paused for {manifest.pause_ms:.1f} ms",
    )


@app.command("scheduled", hidden=True)
def scheduled(
    session: Session,
    create: Annotated[bool, typer.Option("--create", help="Make a backup first.")] = False,
    recheck: Annotated[bool, typer.Option("--recheck", help="Verify a kept one too.")] = False,
) -> None:
    """Run the appliance's scheduled work: verify, prune and upload the newest backup."""
    from appliance.backup.scheduled import run
    from appliance.backup.targets import raise_failures

    work = open_workspace(session)
    attempts = run(
        work,
        create=create,
        recheck=recheck,
        verify=lambda name, key: cli_verify.verifier_of(session, work).verify(name, key),
        upload=lambda: raise_failures(cli_targets.copy_all(session, work)),
    )
    failures = list(attempts.failures.values())
    text = "\n".join(f"{failure.phase}: {failure.error}" for failure in failures)
    session.answer(msgspec.to_builtins(failures), text)


@app.command("list")
def list_backups(session: Session) -> None:
    """List all backups, oldest first, including unreadable ones."""
    rows = [row(listed) for listed in open_workspace(session).backups.list()]
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
    """Show a backup's manifest: the cut, stores, rows and files."""
    backups = open_workspace(session).backups
    manifest = backups.read(name or backups.newest())
    checked = backups.verification(manifest.name)
    verified = "never" if checked is None else f"{checked.result} {checked.checked_at}"
    lines = [
        f"name        {manifest.name}",
        f"cut         {manifest.cut_at} ({manifest.reason}; paused {manifest.pause_ms:.1f} ms)",
        f"workspace   {manifest.db_id}, epoch {manifest.epoch}",
        f"version     {manifest.app_version}",
        f"last event  {manifest.last_event_id}",
        f"verified    {verified}",
        f"encrypted   {', '.join(manifest.recipients) or 'no'}",
    ]
    for store, facts in sorted(manifest.stores.items()):
        rows = ", ".join(f"{table} {count:,}" for table, count in sorted(facts.rows.items()))
        lines.append(f"store       {store}, schema {facts.schema}: {rows}")
    for file in manifest.files:
        lines.append(f"file        {file.name}: {size(file.stored_bytes)}, {file.path}")
    answer = msgspec.to_builtins(manifest) | {"verification": msgspec.to_builtins(checked)}
    session.answer(answer, "\n".join(map(plain, lines)))


def row(listed: ListedBackup) -> dict[str, Any]:
    """Return a backup as a list row."""
    return {**msgspec.to_builtins(listed.row), "verified": listed.result or "never"}
