"""The broker's benchmark runs, and counts what it claims."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.broker.rows import ROWS

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_quick_suite_measures_every_row_and_loses_nothing(tmp_path):
    words = ["broker", "--quick", "--directory", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, "-m", "tests.bench", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)["rows"]
    assert [row["row"] for row in rows] == list(ROWS)
    assert all(figure["value"] > 0 for row in rows for figure in row["figures"])
    assert rows[3]["counted"]["delivered"] == rows[3]["counted"]["sent"]
