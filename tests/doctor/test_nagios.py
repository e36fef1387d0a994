"""`agentlip doctor --nagios`: one line, performance data, and the exit codes of a plugin."""

import os
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from appliance.checks.check import Finding, Severity
from doctor import nagios
from doctor.checks import CHECKS
from doctor.cli import app
from doctor.run import CheckOutcome
from tests.doctor.workspace import WorkspaceFixture

DATA = re.compile(r"(\w+)=([\d.]+)(s|B)?(;[\d:.]*){0,4}")


def run_plugin(workspace: WorkspaceFixture, *arguments: str) -> Any:
    where = ("--workspace", str(workspace.data.workspace))
    return CliRunner().invoke(app, [*where, "--nagios", *arguments], catch_exceptions=False)


def data_of(line: str) -> dict[str, float]:
    fields = [DATA.fullmatch(field) for field in line.rpartition(" | ")[2].split()]
    assert None not in fields, line
    return {field[1]: float(field[2]) for field in fields if field is not None}


def test_healthy_workspace_is_ok(workspace: WorkspaceFixture) -> None:
    workspace.data.write_private(workspace.data.dir / "db.sqlite3-wal", "0" * 32)
    result = run_plugin(workspace, "--group", "host")
    assert result.exit_code == nagios.OK
    (line,) = result.stdout.splitlines()
    checks = sum(check.group == "host" for check in CHECKS)
    assert line.startswith(f"AGENTLIP OK - {checks} checks, no problems | ")
    data = data_of(line)
    assert list(data) == ["warnings", "errors", "seconds", "wal", "free"]
    assert (data["warnings"], data["errors"], data["wal"]) == (0, 0, 32)
    volume = os.statvfs(workspace.data.dir)
    assert data["free"] == pytest.approx(volume.f_bavail * volume.f_frsize, rel=0.05)


def test_warning_exits_with_1_also_without_strict(workspace: WorkspaceFixture) -> None:
    workspace.data.unread_settings_file.write_text("")
    result = run_plugin(workspace)
    assert result.exit_code == nagios.WARNING
    assert result.stdout.startswith("AGENTLIP WARNING - settings.unread: agentlip.config.ts: ")
    assert data_of(result.stdout.strip())["warnings"] == 1


def test_error_exits_with_2_and_comes_before_warnings(workspace: WorkspaceFixture) -> None:
    workspace.data.unread_settings_file.write_text("")
    os.chmod(workspace.data.token_file, 0o644)
    result = run_plugin(workspace, "check")
    assert result.exit_code == nagios.CRITICAL
    assert result.stdout.startswith("AGENTLIP CRITICAL - host.private: ")
    assert "; settings.unread: " in result.stdout


@pytest.mark.parametrize("arguments", [["--run", "host.dsk"], ["check", "--group", "nothing"]])
def test_failure_to_run_is_unknown(workspace: WorkspaceFixture, arguments: list[str]) -> None:
    result = run_plugin(workspace, *arguments)
    assert result.exit_code == nagios.UNKNOWN
    assert result.stdout.startswith("AGENTLIP UNKNOWN - unknown check or group")
    assert len(result.stdout.splitlines()) == 1


def test_text_is_one_line_without_a_bar_and_names_three_problems(
    workspace: WorkspaceFixture,
) -> None:
    findings = tuple(
        Finding(Severity.ERROR, f"a|{number}", "two\nlines", check="a.b", problem="p")
        for number in range(5)
    )
    with workspace.context() as context:
        line, code = nagios.line(context, [CheckOutcome("a.b", "nothing", findings)])
    assert code == nagios.CRITICAL
    assert line.startswith("AGENTLIP CRITICAL - a.b: a/0: two lines; a.b: a/1: two lines; ")
    assert "; and 2 more | " in line
    assert "\n" not in line


def test_causes_come_before_what_they_explain(workspace: WorkspaceFixture) -> None:
    cause = Finding(Severity.WARNING, "disk", "is low", check="host.disk", problem="low")
    explained = Finding(
        Severity.CRITICAL, "hub", "ended", check="s.w", problem="p", explained_by="host.disk:low"
    )
    with workspace.context() as context:
        line, _ = nagios.line(context, [CheckOutcome("s.w", "nothing", (explained, cause))])
    assert line.startswith("AGENTLIP CRITICAL - host.disk: disk: is low; s.w: hub: ended | ")
