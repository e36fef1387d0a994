"""On every legal configuration the doctor says nothing above info, whatever it looks like."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from doctor.cli import app
from doctor.run import select
from tests.doctor.breakages import UsedWorkspace
from tests.doctor.legal import LEGAL, NEED_ROOT, Setup
from tests.doctor.legal_surroundings import SURROUNDINGS, SURROUNDINGS_NEED_ROOT
from tests.doctor.patience import PATIENCE

pytestmark = pytest.mark.slow

CONFIGURATIONS = (*LEGAL, *SURROUNDINGS)
ROOT_ONLY = NEED_ROOT | SURROUNDINGS_NEED_ROOT
ROWS = [
    pytest.param(row, id=row.__name__, marks=[pytest.mark.root] if row in ROOT_ONLY else [])
    for row in CONFIGURATIONS
]


@pytest.mark.parametrize("legal", ROWS)
def test_nothing_is_found(
    legal: Callable[[Setup], Iterator[Path]],
    copy_used: Callable[[Path], UsedWorkspace],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in PATIENCE.items():
        monkeypatch.setenv(name, value)
    with contextmanager(legal)(Setup(tmp_path, copy_used)) as workspace:
        for flags in (("--json", "--strict"), ("--json", "--strict", "--all")):
            result = CliRunner().invoke(
                app, ["--workspace", str(workspace), *flags], catch_exceptions=False
            )
            value = json.loads(result.stdout)
            serious = [
                f"{check['check']}: {each['subject']}: {each['sentence']}"
                for check in value["checks"]
                for each in check["findings"]
                if each["severity"] != "info"
            ]
            assert serious == []
            assert result.exit_code == 0, result.output
            assert len(value["checks"]) == len(select([], "--all" in flags))
