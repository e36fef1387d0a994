"""`agentlipd reset` and `agentlipd uninstall`: the end of a workspace on this machine."""

import os
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, common, note
from appliance.kernel.errors import Invalid

YesFlag = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would go.")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")]


@common
def reset(session: Session, dry_run: DryRunFlag = False, yes: YesFlag = False) -> None:
    """Remove all data of this workspace; refused while the appliance runs.

    Removed is .agentlip/ with everything in it: the stores (messages, queues, outbox, inbox,
    broker), the member key, tokens, logs, snapshots, exports there. Kept are agentlip.toml and
    whatever else is in the workspace. Brokers elsewhere go on knowing the member key; for each
    the answer names the command by which its operator revokes it.

    Example: agentlipd reset --dry-run
    """
    from appliance import daemon
    from appliance import reset as rules

    datadir = daemon.workspace(session.workspace)
    found = rules.look(datadir, os.environ)
    if dry_run:
        _tell(session, found, {"dry_run": True}, "would remove")
        return
    _ask(found, yes, "agentlipd reset --yes")
    with rules.stopped(datadir):
        rules.wipe(datadir)
    _tell(session, found, {"dry_run": False}, "removed")


@common
def uninstall(
    session: Session,
    name: Annotated[str, typer.Option("--name", help="Name of the service.")] = "agentlip",
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Take the appliance off this machine: its service, the running process, all its data.

    Removes the services of this name that were installed for this workspace (one of the machine
    needs root), stops the appliance, then does what `agentlipd reset` does. A member can't revoke
    its own key: for each broker elsewhere the answer names the command for its operator.

    Example: agentlipd uninstall --dry-run
    """
    from appliance import daemon, systemd
    from appliance import reset as rules

    datadir = daemon.workspace(session.workspace)
    units = [systemd.Unit(name, datadir.workspace, [], system) for system in (True, False)]
    units = [unit for unit in units if systemd.is_installed(unit)]
    found = rules.look(datadir, os.environ)
    services = [str(unit.path) for unit in units]
    more = {"dry_run": dry_run, "services": services}
    if dry_run:
        _tell(session, found, more, "would remove")
        return
    _ask(found, yes, "agentlipd uninstall --yes", services)
    for unit in units:
        systemd.uninstall(unit)
    daemon.stop(datadir, note)
    with rules.stopped(datadir):
        rules.wipe(datadir)
    _tell(session, found, more, "removed")


def _ask(found: Any, yes: bool, command: str, services: Sequence[str] = ()) -> None:
    if not yes:
        raise Invalid(
            f"all data of the workspace {found.workspace} would be lost:"
            f" {', '.join([*services, *found.removed])} ({found.bytes} bytes)",
            details={"found": msgspec.to_builtins(found), "services": list(services)},
            hint=command,
        )


def _tell(session: Session, found: Any, more: dict[str, Any], verb: str) -> None:
    lines = [f"{verb} {name}" for name in (*more.get("services", ()), *found.removed)]
    lines += [f"kept {name}" for name in found.kept]
    session.answer({**msgspec.to_builtins(found), **more}, "\n".join(lines))
    if not session.machine:
        for one in found.meshes:
            note(f"the broker of {one.mesh} ({one.url}) knows the key; there: {one.command}")
