"""The benchmarks of broker and outbox run, and count what they claim."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.broker.rows import ROWS as BROKER
from tests.bench.outbox.rows import ROWS as OUTBOX

ROOT = Path(__file__).parents[3]


def quick(suite, folder):
    """Rows by their names."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.bench", suite, "--quick", "--directory", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    rows = {row["row"]: row for row in json.loads(run.stdout)["rows"]}
    assert all(figure["value"] > 0 for row in rows.values() for figure in row["figures"])
    assert list(folder.iterdir()) == [], "something was left behind"
    return rows


@pytest.mark.slow
def test_quick_suite_measures_every_row_and_loses_nothing(tmp_path):
    rows = quick("broker", tmp_path)
    assert list(rows) == list(BROKER)
    assert rows["B4"]["counted"]["delivered"] == rows["B4"]["counted"]["sent"]


@pytest.mark.slow
def test_messages_measured_from_the_outbox_reach_the_inbox(tmp_path):
    rows = quick("outbox", tmp_path)
    assert list(rows) == list(OUTBOX)
    assert rows["O2"]["counted"] == {"accepted": 2000, "received": 2000}
