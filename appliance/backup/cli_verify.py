"""Implements `agentlip backup verify`: restores backups into a scratch directory and checks them
there."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from appliance.backup.backup_directory import BackupWorkspace
from appliance.backup.cli_opened import open_workspace, show_progress
from appliance.backup.cli_restore import IdentityFlag
from appliance.backup.errors import (
    BackupLibraryMissing,
    VerificationFailed,
    VerificationInconclusive,
)
from appliance.backup.failures import end_failure
from appliance.backup.manifest import Verification
from appliance.cli_support import Session, note, plain
from appliance.kernel.errors import Invalid

if TYPE_CHECKING:
    from appliance.backup.verify import Verifier


def verify(
    session: Session,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Backups to verify.")
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="Verify the newest backup (the default).")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Verify all backups.")] = False,
    identity: IdentityFlag = None,
) -> None:
    """Restore backups into a scratch directory, serve them read-only and compare the log.

    Exit code 0: all are good. 17: one is bad. 26: a check could not be finished.
    """
    from appliance.backup import keys
    from appliance.backup.scratch_server import check_installed

    check_installed()
    work = open_workspace(session)
    chosen = _choose(work, names or [], latest, everything)
    identities = keys.load(work.settings, identity)
    with work.backups.only_writer():
        verifier = verifier_of(session, work)
        checked = {}
        for name in chosen:
            checked[name] = verifier.verify(name, identities)
            _report(session, name, checked[name])
    if session.machine:
        rows = [{"name": name, **msgspec.to_builtins(each)} for name, each in checked.items()]
        session.table(rows, (), "")
    _raise_worst(checked)
    end_failure(work, "verify")


def verify_at_once(session: Session, work: BackupWorkspace, name: str, key: Any) -> None:
    """Verify a new backup, and print a note if the backup is not good. The command that made the
    backup succeeds anyway: the backup exists, and the result is recorded."""
    from appliance.backup.scratch_server import check_installed

    try:
        check_installed()
    except BackupLibraryMissing as error:
        note(f"{name} was not verified: {error.message}")
        return
    result = verifier_of(session, work).verify(name, key)
    if result.result != "good" and not session.machine:
        note(f"{name} is {result.result}: {plain('; '.join(result.problems[:3]))}")


def verifier_of(session: Session, work: BackupWorkspace) -> "Verifier":
    from appliance.backup.verify import Verifier
    from doctor.copied_stores import problems

    return Verifier(
        work,
        lambda copy, groups, seconds: problems(copy, groups, work.clock, seconds),
        show_progress(session, work.clock),
    )


def _choose(work: BackupWorkspace, names: list[str], latest: bool, everything: bool) -> list[str]:
    """Return the names to verify. Raises BackupNotFound before anything is done."""
    if sum((bool(names), latest, everything)) > 1:
        raise Invalid("choose names, --latest or --all", hint="agentlip backup verify --latest")
    if names:
        return [work.backups.path(name).name for name in dict.fromkeys(names)]
    if everything:
        return work.backups.names()
    return [work.backups.newest()]


def _report(session: Session, name: str, result: Verification) -> None:
    if not session.machine:
        session.answer({}, f"{name}: {result.result} ({result.seconds:.1f} s)")
        for problem in result.problems:
            note(f"  {plain(problem)}")


def _raise_worst(checked: dict[str, Verification]) -> None:
    for wanted, error in (("bad", VerificationFailed), ("inconclusive", VerificationInconclusive)):
        names = [name for name, result in checked.items() if result.result == wanted]
        if names:
            first = checked[names[0]].problems[0]
            raise error(f"{names[0]}: {first}", details={"names": names})
