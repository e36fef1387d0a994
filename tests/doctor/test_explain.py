"""`agentlip doctor explain`: what the pages say, without a workspace."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from appliance.checks.check import COMMON_PROBLEMS
from doctor.all_checks import CHECKS
from doctor.cli import app
from doctor.explain import explain
from doctor.run import UnknownCheck


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_check_and_each_of_its_findings_is_explained(check):
    whole = explain(check.name)
    assert whole["about"].startswith("The check ")
    assert [row["problem"] for row in whole["findings"]] == [each.name for each in check.problems]
    for problem in (*(each.name for each in check.problems), *COMMON_PROBLEMS):
        (row,) = explain(f"{check.name}:{problem}")["findings"]
        assert row["problem"] == problem
        assert row["meaning"].endswith(".")
        assert row["advice"].endswith(".")
        assert "](" not in row["meaning"] + row["advice"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("host.dsk", "use one of: host.disk, "),
        ("store.record:behnd", "use one of: store.record:behind"),
        ("left-behind", "use one of: host.lock:left-behind, "),
        ("zzzzzz", "agentlip doctor list"),
    ],
)
def test_unknown_name_gets_similar_ones(name, hint):
    with pytest.raises(UnknownCheck) as refused:
        explain(name)
    assert refused.value.hint.startswith(hint)


def test_command_needs_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["explain", "host.disk:full"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "Free disk space." in shown.stdout
    assert "read-only" not in shown.stdout
    printed = CliRunner().invoke(app, ["explain", "host.disk", "--json"], catch_exceptions=False)
    assert json.loads(printed.stdout) == explain("host.disk")
