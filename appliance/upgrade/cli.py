"""Implements `agentlip migrate`: plans, checks and runs a workspace migration.

A plan's exit codes: 0 the plan can be applied; 5 the data is newer than this version; 7 the plan
can't be applied for another reason, for example damage.
"""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from appliance.cli_support import Session, plain_app
from appliance.kernel.errors import Conflict, Invalid
from appliance.kernel.log import Log
from appliance.process.daemon import hold_locks
from appliance.upgrade.apply import apply as apply_migration
from appliance.upgrade.plan import MigrationPlan, StorePlan, plan, stores_of
from appliance.upgrade.sections import read_sections
from appliance.workspace.datadir import find_workspace

ConfigFlag = Annotated[
    Path | None,
    typer.Option("--config", help="Settings file (default: agentlip.toml in the workspace)."),
]
EXIT_TOO_NEW, EXIT_REFUSED = 5, 7
YesFlag = Annotated[bool, typer.Option("--yes", help="Confirm. Without it nothing is changed.")]

migrate_app = plain_app(listed="Administration/migrate")


@migrate_app.command()
def migrate(
    session: Session,
    show_plan: Annotated[
        bool, typer.Option("--plan", help="Only show the planned steps. Works at any time.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Migrate all stores. The appliance must be stopped.")
    ] = False,
    yes: YesFlag = False,
    without_backup: Annotated[
        bool,
        typer.Option("--without-backup", help="Migrate without a backup, as on a full disk."),
    ] = False,
    config: ConfigFlag = None,
) -> None:
    """Migrate a workspace's stores to this version's schema.

    `agentlipd up` also migrates at the start. A backup with all stores is made first and kept; a
    failed migration's error names the command that restores the backup.

    Exit codes of --plan: 0 this version can open the data; 5 the data is newer; 7 the data can't be
    opened for another reason, for example a damaged store.

    Example: agentlip migrate --plan
    """
    if show_plan == apply:
        raise Invalid(
            "name either --plan or --apply", hint="agentlip migrate --plan; then: --apply"
        )
    datadir = find_workspace(session.workspace)
    sections = read_sections(datadir, config)
    if show_plan:
        planned = plan(datadir, sections)
        session.answer(msgspec.to_builtins(planned), "\n".join(_plan_lines(planned)))
        is_newer = any(store.status == "too_new" for store in planned.refused)
        raise typer.Exit(EXIT_TOO_NEW if is_newer else EXIT_REFUSED if planned.refused else 0)
    with hold_locks(datadir) as clock:
        planned = plan(datadir, sections, locked=True)
        if planned.refused:
            raise Conflict(
                "; ".join(f"{store.store}: {store.problem}" for store in planned.refused),
                hint=planned.refused[0].hint,
            )
        migrated = {store.store: store.steps for store in planned.stores if store.steps}
        lines = [f"{store}: {', '.join(steps)}" for store, steps in migrated.items()]
        if lines and not yes:
            raise Invalid(
                f"these steps would be applied: {'; '.join(lines)}",
                hint="--yes",
            )
        log = Log(sys.stderr.buffer, level="error", clock=clock)
        stores = stores_of(datadir, sections)
        saved = apply_migration(
            datadir, sections.backup, stores, clock, log, backup=not without_backup
        )
    lines = [f"applied {line}" for line in lines]
    lines += [f"the state before is in the backup {saved}"] if saved else []
    answer = "\n".join(lines) or "nothing to do: all stores have this version's schema"
    session.answer({"backup": saved, "migrated": migrated}, answer)


def _plan_lines(planned: MigrationPlan) -> list[str]:
    lines = [_store_line(store) for store in planned.stores]
    if planned.refused:
        return [*lines, "This version can't open the data."]
    if not planned.steps:
        return [*lines, "Nothing to migrate."]
    lines.append("First, a backup of all stores is made, checked and kept.")
    return [*lines, "Next: agentlipd down; then agentlip migrate --apply --yes, or agentlipd up"]


def _store_line(store: StorePlan) -> str:
    match store.status:
        case "pending":
            steps = ", ".join(store.steps)
            return f"{store.store}: schema {store.schema} → {store.program}: {steps}"
        case "current":
            return f"{store.store}: schema {store.schema}, nothing to do"
        case "new":
            return f"{store.store}: no file yet; the next start creates it"
        case _:
            status = store.status.replace("_", " ")
            return f"{store.store}: {status}: {store.problem} (hint: {store.hint})"
