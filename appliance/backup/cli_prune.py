"""`agentlip backup prune`: removes backups that the settings do not keep, each with its reason."""

import sys
from typing import Annotated, Any

import typer

from appliance.backup.cli_opened import open_workspace
from appliance.backup.retention import RetentionDecision
from appliance.cli_support import Session
from appliance.kernel.errors import Invalid

_COLUMNS = (("NAME", "name"), ("ACTION", "action"), ("REASON", "why"))


def prune(
    session: Session,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be removed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
) -> None:
    """Remove backups that backup.keep_… does not keep, and list all with the reason.

    Example: agentlip backup prune --dry-run
    """
    from appliance.backup import prune as verbs

    work = open_workspace(session)
    decisions = verbs.plan(work.backups, work.settings, work.clock)
    if not dry_run and (yes or _is_confirmed(session, decisions)):
        with work.backups.only_writer():
            decisions = verbs.prune(work.backups, work.settings, work.clock)
        _show(session, decisions, "removed")
        return
    _show(session, decisions, "remove")
    if not dry_run and _remove(decisions):
        raise Invalid("nothing was removed", hint="agentlip backup prune --yes")


def _is_confirmed(session: Session, decisions: list[RetentionDecision]) -> bool:
    """Asks on a terminal only, and only if there is something to remove."""
    count = _remove(decisions)
    if not count or session.machine or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    _show(session, decisions, "remove")
    return bool(typer.confirm(f"Remove {count} backups?", default=False, err=True))


def _remove(decisions: list[RetentionDecision]) -> int:
    return sum(not decision.keep for decision in decisions)


def _show(session: Session, decisions: list[RetentionDecision], verb: str) -> None:
    rows: list[dict[str, Any]] = [
        {"name": decision.name, "action": "keep" if decision.keep else verb, "why": decision.why}
        for decision in decisions
    ]
    session.table(rows, _COLUMNS, "no backups: agentlip backup create")
