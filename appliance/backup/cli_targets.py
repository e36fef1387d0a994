"""`agentlip backup targets|upload|fetch`: sets in other storage."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.backup import fetch as fetching
from appliance.backup import targets as configured
from appliance.backup.opened import Opened, opened, opened_at
from appliance.backup.settings import TargetSettings
from appliance.backup.targets import TargetAccess, TargetReport, UploadOutcome
from appliance.cli_support import Session, common, note, plain
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import Invalid
from appliance.kernel.pause import pause

TargetFlag = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="Only this target.")
]
LatestFlag = Annotated[bool, typer.Option("--latest", help="The newest backup.")]
_NO_TARGETS = "no targets are configured; add [[backup.targets]] to agentlip.toml"


@common
def targets(
    session: Session,
    target: TargetFlag = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read every byte there and compare it.")
    ] = False,
) -> None:
    """List the targets and what each of them has: agentlip backup targets --check"""
    access = _access(opened(session))
    progress = TransferProgress(session)
    reports = [
        configured.report(access, each, check=check, tell=progress.tell)
        for each in configured.named(access.settings, target)
    ]
    progress.end()
    session.table([_row(session, each) for each in reports], _COLUMNS, _NO_TARGETS)
    problems = [problem for each in reports for problem in each.problems]
    if not session.machine:
        for problem in problems:
            note(plain(problem.message))
    if check and any(each.state != "ok" for each in reports):
        raise typer.Exit(18)


@common
def upload(
    session: Session,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…")] = None,
    latest: LatestFlag = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every backup that a target does not have (default).")
    ] = False,
    target: TargetFlag = None,
) -> None:
    """Copy backups to the targets; an interrupted copy continues: agentlip backup upload"""
    if bool(names) + latest + everything > 1:
        raise Invalid("use only one of NAME, --latest and --all", hint="agentlip backup upload")
    access = _access(opened(session))
    wanted = configured.named(access.settings, target)
    if not wanted:
        raise Invalid(_NO_TARGETS, hint="docs/how-to/keep-backups-elsewhere.md")
    if names:
        chosen = [access.sets.path(name).name for name in sorted(set(names))]
    else:
        chosen = [access.sets.newest()] if latest else access.sets.names()
    progress = TransferProgress(session)
    outcomes: list[UploadOutcome] = []
    for each in wanted:
        outcomes += configured.upload(
            access, each, chosen, older_may_be_plain=not names, tell=progress.tell
        )
    progress.end()
    rows = [msgspec.to_builtins(outcome) for outcome in outcomes]
    session.table(rows, _OUTCOME_COLUMNS, "there is no backup to copy: agentlip backup create")
    configured.raise_failures(outcomes)


@common
def fetch(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]")] = None,
    latest: LatestFlag = False,
    target: TargetFlag = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="A new workspace, which may be empty."),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="A target that is not in the settings.")
    ] = None,
    endpoint: Annotated[str, typer.Option("--endpoint", help="For --url: its server.")] = "",
    region: Annotated[str, typer.Option("--region", help="For --url: its region.")] = "",
) -> None:
    """Bring a backup back from a target: agentlip backup fetch --latest --target NAME"""
    if (name is None) == (not latest):
        raise Invalid("name a backup, or use --latest", hint="agentlip backup fetch --latest")
    own = opened(session) if into is None else _new_workspace(into)
    base = own.datadir.workspace if into is None else Path.cwd()
    access = _access(own)
    chosen = _source(access, target, url, endpoint, region)
    remote, attempts = access.open(chosen, base=base)
    progress = TransferProgress(session)
    with own.sets.only_writer():
        wanted = name if name is not None else fetching.newest_at(remote, attempts)
        manifest, fetched = fetching.fetch(
            remote, wanted, own.sets, own.settings, attempts, progress.tell
        )
    progress.end()
    path = own.sets.path(manifest.name)
    done = "is whole in" if fetched else "was already whole in"
    session.answer(
        {"name": manifest.name, "path": str(path), "fetched": fetched},
        f"{manifest.name} {done} {path.parent}",
    )


def _source(
    access: TargetAccess, target: str | None, url: str | None, endpoint: str, region: str
) -> TargetSettings:
    if url is not None:
        if target is not None:
            raise Invalid("use either --target or --url", hint="agentlip backup fetch --help")
        return TargetSettings(name="url", url=url, endpoint=endpoint, region=region)
    if endpoint or region:
        raise Invalid("--endpoint and --region need --url", hint="agentlip backup fetch --help")
    wanted = configured.named(access.settings, target)
    if len(wanted) != 1:
        problem = "there are several targets" if wanted else _NO_TARGETS
        raise Invalid(problem, hint="name one: --target NAME, or --url s3://BUCKET/PREFIX")
    return wanted[0]


def _new_workspace(into: Path) -> Opened:
    """A workspace that may have no data yet. The targets are those of the current directory, and
    the set is written to where its commands expect it."""
    datadir = DataDir(into)
    datadir.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    own, here = opened_at(datadir), opened_at(DataDir(Path.cwd()))
    if here.settings.targets:
        return own._replace(
            settings=msgspec.structs.replace(own.settings, targets=here.settings.targets)
        )
    return own


def _access(own: Opened) -> TargetAccess:
    return TargetAccess(own.datadir, own.sets, own.settings, own.clock, os.environ.get, pause)


_COLUMNS = (
    ("TARGET", "name"),
    ("STATE", "state"),
    ("BACKUPS", "count"),
    ("MISSING", "lacking"),
    ("LAST UPLOAD", "last_upload"),
    ("PROBLEM", "problem"),
)
_OUTCOME_COLUMNS = (
    ("BACKUP", "name"),
    ("TARGET", "target"),
    ("RESULT", "result"),
    ("BYTES", "bytes"),
    ("PROBLEM", "problem"),
)


def _row(session: Session, each: TargetReport) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(each)
    row["problems"] = [problem._asdict() for problem in each.problems]
    if not session.machine:
        row |= {"count": len(each.sets), "lacking": len(each.missing)}
    return row


class TransferProgress:
    """One line on a terminal, renewed at most once a second, for what takes over a second."""

    def __init__(self, session: Session) -> None:
        self._enabled = sys.stderr.isatty() and not session.machine
        self._clock = SystemClock()
        self._written_at = self._clock.monotonic()
        self._open = False

    def tell(self, what: str, done: int, total: int) -> None:
        now = self._clock.monotonic()
        if not self._enabled or now - self._written_at < 1:
            return
        self._written_at, self._open = now, True
        share = 100 * done // total if total else 100
        sys.stderr.write(f"\r\033[K{what}: {share} % of {total:,} bytes")
        sys.stderr.flush()

    def end(self) -> None:
        if self._open:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
