"""`agentlipd reset` and `agentlipd uninstall`: remove a workspace's data."""

import os
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, note
from appliance.kernel.errors import Invalid

YesFlag = Annotated[
    bool,
    typer.Option(
        "--yes", help="Confirm the removal. Without it, the command only lists the files."
    ),
]
NameFlag = Annotated[str, typer.Option("--name", help="systemd service name.")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Only list the files to remove.")]


def reset(session: Session, dry_run: DryRunFlag = False, yes: YesFlag = False) -> None:
    """Remove all data in this workspace; refused while the appliance runs.

    Removes .agentlip/ with everything in it: the stores (messages, queues, outbox, inbox, broker),
    the member key, tokens, logs, snapshots and exports. Keeps agentlip.toml and other files
    in the workspace. Brokers elsewhere keep the member key: the output names, for each, the
    command with which its operator revokes it.

    Example: agentlipd reset --dry-run
    """
    from appliance import reset as rules
    from appliance.process import daemon
    from appliance.workspace.datadir import find_workspace

    datadir = find_workspace(session.workspace)
    plan = rules.plan(datadir, os.environ)
    if dry_run:
        _print_plan(session, plan, {"dry_run": True}, "would remove")
        return
    _require_yes(plan, yes)
    with daemon.hold_locks(datadir):
        rules.wipe(datadir)
    _print_plan(session, plan, {"dry_run": False}, "removed")


def uninstall(
    session: Session,
    name: NameFlag = "agentlip",
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Remove this workspace's appliance: service, process and all data.

    Removes the services with this name that were installed for this workspace (system services
    need root), stops the appliance, and then removes what `agentlipd reset` removes. A member
    can't revoke its own key: for each broker elsewhere, the output names the operator's command.

    Example: agentlipd uninstall --dry-run
    """
    from appliance import reset as rules
    from appliance.process import daemon, stopping, systemd
    from appliance.workspace.datadir import find_workspace

    datadir = find_workspace(session.workspace)
    units = [systemd.Unit(name, datadir.workspace, [], system) for system in (True, False)]
    units = [unit for unit in units if systemd.is_installed(unit)]
    plan = rules.plan(datadir, os.environ)
    services = [str(unit.path) for unit in units]
    more = {"dry_run": dry_run, "services": services}
    if dry_run:
        _print_plan(session, plan, more, "would remove")
        return
    _require_yes(plan, yes, services)
    for unit in units:
        systemd.uninstall(unit)
    stopping.stop(datadir, note)
    with daemon.hold_locks(datadir):
        rules.wipe(datadir)
    _print_plan(session, plan, more, "removed")


def _require_yes(plan: Any, yes: bool, services: Sequence[str] = ()) -> None:
    if not yes:
        raise Invalid(
            f"all data in the workspace {plan.workspace} would be lost:"
            f" {', '.join([*services, *plan.removed])} ({plan.bytes} bytes)",
            details={"found": msgspec.to_builtins(plan), "services": list(services)},
            hint="--yes",
        )


def _print_plan(session: Session, plan: Any, more: dict[str, Any], verb: str) -> None:
    lines = [f"{verb} {name}" for name in (*more.get("services", ()), *plan.removed)]
    lines += [f"kept {name}" for name in plan.kept]
    session.answer({**msgspec.to_builtins(plan), **more}, "\n".join(lines))
    for mesh in plan.meshes:
        session.note(f"{mesh.mesh}'s broker ({mesh.url}) knows the key; there: {mesh.command}")
