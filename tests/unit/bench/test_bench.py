"""The benchmark runs, counts what it claims, and refuses what it must."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import turns
from tests.bench.hub.suite import ROWS
from tests.bench.target import Refused, loopback

ROOT = Path(__file__).parents[3]
CORES = ("server", "server_main_thread", "generator", "others")
CONDITIONS = {"cores", "python", "sqlite", "durability", "commit", "fdatasync_ms", "load_before"}


@pytest.mark.slow
def test_quick_suite_measures_every_row_and_loses_nothing(tmp_path):
    out = tmp_path / "result.json"
    words = ["hub", "--quick", "--directory", str(tmp_path), "--out", str(out)]
    run = subprocess.run(
        [sys.executable, "-m", "tests.bench", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result == json.loads(out.read_text())
    assert set(result["conditions"]) >= CONDITIONS
    assert result["quick"] is True
    assert [row["row"] for row in result["rows"]] == list(ROWS)
    for row in result["rows"]:
        assert "failed" not in row
        assert row["reached"] in (True, False)
        assert row["floor"]
        assert all(figure["value"] > 0 for figure in row["figures"])
        metered = [item for item in row["runs"] if "cores" in item]
        assert metered
        for item in metered:
            assert set(item["cores"]) == set(CORES)
    counted = {row["row"]: row["counted"] for row in result["rows"]}
    assert len(set(counted["P1"].values())) == 1
    assert all(variant["lost"] == 0 for variant in counted["P5"].values())
    assert list(tmp_path.iterdir()) == [out], "something was left behind"


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "example.invalid", "localhost.", "::"])
def test_no_load_goes_beyond_loopback(host):
    with pytest.raises(Refused):
        loopback(host)


def test_row_above_the_limit_is_slower_by_its_medians() -> None:
    old = [
        {"post": 100.0, "read": 100.0},
        {"post": 300.0, "read": 99.0},
        {"post": 101.0, "read": 90.0},
    ]
    new = [
        {"post": 108.0, "read": 108.0},
        {"post": 50.0, "read": 110.0},
        {"post": 109.0, "read": 107.0},
    ]
    lines, is_slower = turns.report(old, new)
    assert [line.split()[0] for line in lines if "SLOWER" in line] == ["read"]
    assert is_slower


@pytest.mark.slow
def test_tree_is_compared_with_a_commit_in_its_own_clone() -> None:
    words = ["compare", "HEAD", "--turns", "1", "--rows", "bus message"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode in (0, 1), done.stderr
    assert "bus message" in done.stdout
