"""A run with nothing to do starts neither Spark nor Java, whatever the lake looks like."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.log import Log

ROOT = Path(__file__).parents[2]
RUN = """
import sys
from spark import run
code = run.main(sys.argv[1:])
assert not {"pyspark", "py4j", "pyarrow"} & set(sys.modules)
sys.exit(code)
"""


@pytest.fixture
def export(tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    log.say(topic)
    log.wait(days=1).say(topic)
    return log.export(tmp_path / "in")


def stem(manifest):
    return f"epoch-1/{manifest.name.removesuffix('.manifest.json')}"


def publish(out, **fields):
    version = out / "silver/v00000001"
    version.mkdir(parents=True)
    manifest = {"schema": "silver-2", "files": {}, "memory": {"segments": []}} | fields
    (version / "manifest.json").write_text(json.dumps(manifest))
    (out / "silver/current").symlink_to(version.name)
    return version / "manifest.json"


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
    publish(tmp_path / "out", memory={"segments": [stem(manifest) for manifest in export]})
    done = ingest(tmp_path)
    assert (done.returncode, done.stdout) == (0, "ingest: nothing new\n"), done.stderr


def test_skipped_segment_does_not_start_an_engine_again(export, tmp_path):
    from spark import segments

    folder = tmp_path / "in/events"
    export[1].write_text("{")
    skipped = {str(export[1].relative_to(folder)): segments.state(export[1])}
    memory = {"segments": [stem(export[0])], "skipped": skipped}
    publish(tmp_path / "out", memory=memory)
    done = ingest(tmp_path, "--quarantine-segments")
    assert (done.returncode, done.stdout) == (0, "ingest: nothing new\n"), done.stderr
    assert ingest(tmp_path).returncode == 11


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", 11),
        ("[]", 11),
        ("{}", 11),
        ('{"schema": "silver-2", "files": [], "memory": {}}', 11),
        ('{"schema": "silver-99", "files": {}, "memory": {}}', 13),
        (None, 10),
    ],
)
def test_damaged_lake_is_an_error_before_the_engine_starts(export, tmp_path, text, code):
    manifest = publish(tmp_path / "out")
    if text is None:
        manifest.unlink()
    else:
        manifest.write_text(text)
    done = ingest(tmp_path)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "hint: " in done.stderr
