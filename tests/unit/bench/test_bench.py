"""The benchmark runs, counts what it claims, and refuses what it must."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import compare
from tests.bench.client import split
from tests.bench.figures import Figure, Row, percentiles
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


def test_unknown_row_is_refused_before_anything_starts():
    run = subprocess.run(
        [sys.executable, "-m", "tests.bench", "hub", "--rows", "P1,P77"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert "P77" in run.stderr


def test_split_leaves_the_frame_that_is_not_whole():
    short, long = b"\x81\x02hi", b"\x81\x7e\x01\x00" + b"x" * 256
    frames, used = split(short + long + long[:100])
    assert frames == [b"hi", b"x" * 256]
    assert used == len(short + long)


def test_percentiles_cover_all_values():
    output = percentiles([number / 1000 for number in range(1, 101)])
    assert output == {
        "count": 100,
        "p50_ms": 51.0,
        "p95_ms": 96.0,
        "p99_ms": 100.0,
        "max_ms": 100.0,
    }


def test_row_reaches_its_targets_only_together():
    row = Row("P0", "nothing")
    row.figures = [Figure("rate", 10, "per s", at_least=10), Figure("p99", 5, "ms", below=5)]
    assert row.as_json()["reached"] is False
    row.figures[1].value = 4.9
    assert row.as_json()["reached"] is True


def result_of(value: float, name: str = "p50") -> dict:
    row = Row("P1", "inserts")
    row.figures = [Figure(name, value, "ms", below=1)]
    row.floor = {"what": "one sync", "p50_ms": 0.1}
    row.runs = [{"cores": dict.fromkeys(CORES, 0.5)}]
    return {"conditions": {"cores": 2}, "rows": [row.as_json()]}


def test_comparison_knows_whether_more_is_better():
    _, line = compare.compare(result_of(2.0), result_of(1.0))
    assert "0.50 better" in line
    _, line = compare.compare(result_of(1.0), result_of(2.0))
    assert "2.00 worse" in line
    _, line = compare.compare(result_of(1.0), result_of(1.1))
    assert "1.10 alike" in line
