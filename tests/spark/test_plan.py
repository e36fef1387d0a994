"""A run with nothing to do starts neither Spark nor Java, whatever the lake looks like."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.log import Log
from tests.support.gold_tables import record_run

ROOT = Path(__file__).parents[2]
RUN = """
import sys
from spark import run
code = run.main(sys.argv[1:])
assert not {"pyspark", "py4j"} & set(sys.modules)
sys.exit(code)
"""


@pytest.fixture
def export(tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    log.say(topic)
    log.wait(days=1).say(topic)
    return log.export(tmp_path / "in")


def ranges(*manifests):
    """What a run that took these segments remembers."""
    ids = [[int(text) for text in re.findall(r"\d{20}", each.name)] for each in manifests]
    return {"epoch-1": ids}


def publish(out, schema="silver-3", **checkpoint):
    record_run(out / "silver", schema, {}, **checkpoint)
    return out / "silver/runs/_delta_log/00000000000000000000.json"


def ingest(tmp_path, *more):
    """Without Java on the path: a run that needed it would fail."""
    words = ["ingest", "--in", f"{tmp_path}/in", "--out", f"{tmp_path}/out", *more]
    environment = os.environ | {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment.pop("JAVA_HOME", None)
    return subprocess.run(
        [sys.executable, "-c", RUN, *words],
        capture_output=True, text=True, check=False, env=environment, cwd=ROOT,
    )  # fmt: skip


def test_run_without_new_segments_starts_no_engine(export, tmp_path):
    publish(tmp_path / "out", ranges=ranges(*export))
    done = ingest(tmp_path)
    assert (done.returncode, done.stdout) == (0, "ingest: nothing new\n"), done.stderr


def test_skipped_segment_does_not_start_an_engine_again(export, tmp_path):
    from spark import segments

    folder = tmp_path / "in"
    export[1].write_text("{")
    message = f"the manifest {export[1]} is truncated or malformed"
    skipped = {str(export[1].relative_to(folder)): [segments.state(export[1]), message]}
    warnings = [["segments.sound", "segments", "warn", 1, 1, "it is malformed"]]
    publish(tmp_path / "out", ranges=ranges(export[0]), skipped=skipped, warnings=warnings)
    done = ingest(tmp_path, "--quarantine-segments")
    shown = "check segments.sound: WARN: 1 fail (it is malformed)\ningest: nothing new\n"
    assert (done.returncode, done.stdout) == (0, shown), done.stderr
    done = json.loads(ingest(tmp_path, "--quarantine-segments", "--json").stdout)
    assert [check["note"] for check in done["checks"]] == ["it is malformed"]
    record = json.loads((tmp_path / "out/runs/ingest.json").read_text())
    assert (record["outcome"], record["exit_code"]) == ("failed", 0)
    assert record["error"] == "segments are skipped: it is malformed"
    assert record["counts"] == {"skipped_segments": 1}
    assert ingest(tmp_path).returncode == 11


def test_lake_of_links_to_versions_is_not_mixed_with_tables(export, tmp_path):
    (tmp_path / "out/silver/current").mkdir(parents=True)
    done = ingest(tmp_path)
    assert done.returncode == 13
    assert "hint: remove its directories silver and gold" in done.stderr


def test_damaged_lake_is_an_error_before_the_engine_starts(export, tmp_path):
    log = publish(tmp_path / "out")
    for damage, code in (
        (lambda: record_run(tmp_path / "out/silver", "silver-99", {}, 2), 13),
        (lambda: log.write_text("{"), 11),
    ):
        damage()
        done = ingest(tmp_path)
        assert done.returncode == code
        assert "Traceback" not in done.stderr
        assert "hint: " in done.stderr
