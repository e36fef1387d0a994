"""Whether the installed program can open a workspace, and what it would change in it."""

from typing import Literal

import msgspec

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.errors import BackupError
from appliance.upgrade.plan import MigrationPlan, plan
from appliance.upgrade.sections import UpgradeSections
from appliance.workspace.datadir import DataDir

UpgradeResult = Literal["nothing", "possible", "too_new", "not_possible"]
EXIT_CODES: dict[UpgradeResult, int] = {
    "nothing": 0, "possible": 0, "too_new": 5, "not_possible": 7
}  # fmt: skip
"""The exit code of each result."""


class LastBackup(msgspec.Struct, frozen=True):
    """The newest backup that can be read. `verification`: result of its check, "never" without."""

    name: str
    created_at: str
    verification: str


class UpgradeReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `agentlip upgrade --check`.

    result           nothing: the data has this program's schema; possible: it would be migrated;
                     too_new, not_possible: it would be refused
    version          of the installed program; `running_version` of the appliance that runs, "" if
                     none runs or it does not say
    """

    result: UpgradeResult
    version: str
    running: bool
    running_version: str
    last_backup: LastBackup | None
    problems: tuple[str, ...]
    hints: tuple[str, ...]
    plan: MigrationPlan


def report(datadir: DataDir, sections: UpgradeSections) -> UpgradeReport:
    planned = plan(datadir, sections)
    server = datadir.read_server() if planned.running else None
    problems = [f"{store.store}: {store.problem}" for store in planned.refused]
    hints = [store.hint for store in planned.refused]
    return UpgradeReport(
        result=_result(planned, bool(problems)),
        version=planned.version,
        running=planned.running,
        running_version=server.app_version if server else "",
        last_backup=_last_backup(datadir, sections),
        problems=tuple(problems),
        hints=tuple(dict.fromkeys(hints)),
        plan=planned,
    )


def _result(planned: MigrationPlan, problems: bool) -> UpgradeResult:
    if any(store.status == "too_new" for store in planned.stores):
        return "too_new"
    if problems:
        return "not_possible"
    return "possible" if planned.steps else "nothing"


def _last_backup(datadir: DataDir, sections: UpgradeSections) -> LastBackup | None:
    backups = BackupDirectory(datadir, sections.backup)
    try:
        name = backups.newest()
        manifest, verification = backups.read(name), backups.verification(name)
    except (BackupError, OSError):
        return None
    result = verification.result if verification else "never"
    return LastBackup(name, manifest.created_at, result)
