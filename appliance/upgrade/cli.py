"""`agentlip migrate`: plan, check and run the migration of a workspace.

Exit codes of a plan: 0 it can be applied; 5 the data is newer than this version; 7 it can't be
applied for another reason, for example damage.
"""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from appliance.backup.cli_opened import size
from appliance.cli_support import Session, plain_app
from appliance.kernel.errors import Invalid
from appliance.kernel.log import Log
from appliance.process.daemon import hold_locks
from appliance.sdk.discovery import find_workspace
from appliance.upgrade import apply as applying
from appliance.upgrade.plan import MigrationPlan, StorePlan, plan
from appliance.upgrade.sections import read_sections

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
        bool, typer.Option("--plan", help="Only show what would be done. Works at any time.")
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
    """Migrate the stores of a workspace to the schema of this version.

    `agentlipd up` does the same at its start. A backup of all stores is made first and kept; the
    error of a failed migration names the command that restores it.

    Exit codes of --plan: 0 this version can open the data; 5 the data is newer; 7 it can't for
    another reason, for example a damaged store.

    Example: agentlip migrate --plan
    """
    if show_plan == apply:
        raise Invalid(
            "name one of --plan and --apply", hint="agentlip migrate --plan; then: --apply"
        )
    datadir = find_workspace(session.workspace)
    sections = read_sections(datadir, config)
    if show_plan:
        planned = plan(datadir, sections)
        session.answer(msgspec.to_builtins(planned), "\n".join(_plan_lines(planned)))
        raise typer.Exit(_exit_code(planned))
    with hold_locks(datadir) as clock:
        planned = plan(datadir, sections, locked=True)
        applying.check_possible(planned)
        if planned.steps and not yes:
            raise _not_confirmed(planned, without_backup)
        log = Log(sys.stderr.buffer, level="error", clock=clock)
        done = applying.apply(
            datadir, planned, sections.backup, clock, log, backup=not without_backup
        )
    lines = [f"{store}: applied {', '.join(steps)}" for store, steps in done.migrated.items()]
    lines += [f"the state before is in the backup {done.backup}"] if done.backup else []
    answer = "\n".join(lines) or "nothing to do: all stores have the schema of this version"
    session.answer(msgspec.to_builtins(done), answer)


def _not_confirmed(planned: MigrationPlan, without_backup: bool) -> Invalid:
    flag = " --without-backup" if without_backup else ""
    return Invalid(
        f"{_steps(planned.steps)} would be applied: "
        + ", ".join(f"{store.store} {', '.join(store.steps)}" for store in _find_pending(planned)),
        details={"plan": msgspec.to_builtins(planned)},
        hint=f"agentlip migrate --apply --yes{flag}",
    )


def _exit_code(planned: MigrationPlan) -> int:
    if any(store.status == "too_new" for store in planned.refused):
        return EXIT_TOO_NEW
    return EXIT_REFUSED if planned.refused else 0


def _find_pending(planned: MigrationPlan) -> list[StorePlan]:
    return [store for store in planned.stores if store.status == "pending"]


def _plan_lines(planned: MigrationPlan) -> list[str]:
    lines = [_store_line(store) for store in planned.stores]
    if planned.refused:
        return [*lines, "This version can't open the data."]
    if not planned.steps:
        return [*lines, "Nothing to migrate."]
    if planned.backup:
        lines.append("Before that, a backup of all stores is made, checked and kept.")
    next_step = "agentlipd down; agentlip migrate --apply" if planned.running else ""
    return [*lines, f"Next: {next_step or 'agentlip migrate --apply, or agentlipd up'}"]


def _store_line(store: StorePlan) -> str:
    stored = size(store.bytes)
    match store.status:
        case "pending":
            steps = ", ".join(store.steps)
            return f"{store.store}: schema {store.schema} → {store.program} ({stored}): {steps}"
        case "current":
            return f"{store.store}: schema {store.schema}, nothing to do ({stored})"
        case "new":
            return f"{store.store}: no file yet; the next start creates it"
        case _:
            hint = f" (hint: {store.hint})" if store.hint else ""
            return f"{store.store}: {store.status.replace('_', ' ')}: {store.problem}{hint}"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"
