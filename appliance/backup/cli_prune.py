"""Implements `agentlip backup prune`: removes backups that the settings do not keep, each with a
reason."""

from typing import Annotated, Any

import typer

from appliance.backup.cli_opened import open_workspace
from appliance.backup.failures import end_failure
from appliance.backup.retention import RetentionDecision
from appliance.cli_support import Session
from appliance.kernel.errors import Invalid

_COLUMNS = (("NAME", "name"), ("ACTION", "action"), ("REASON", "why"))


def prune(
    session: Session,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the backups to remove.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm the removal.")] = False,
) -> None:
    """Remove backups that backup.keep_… does not keep. Lists all, with the reasons.

    Example: agentlip backup prune --dry-run
    """
    from appliance.backup import prune as verbs

    work = open_workspace(session)
    decisions = verbs.plan(work)
    if yes and not dry_run:
        with work.backups.only_writer():
            decisions = verbs.prune(work)
        end_failure(work, "prune")
        _show(session, decisions, "removed")
        return
    _show(session, decisions, "remove")
    if not dry_run and not all(decision.keep for decision in decisions):
        raise Invalid("nothing was removed", hint="--yes")


def _show(session: Session, decisions: list[RetentionDecision], verb: str) -> None:
    rows: list[dict[str, Any]] = [
        {"name": decision.name, "action": "keep" if decision.keep else verb, "why": decision.why}
        for decision in decisions
    ]
    session.table(rows, _COLUMNS, "no backups: agentlip backup create")
