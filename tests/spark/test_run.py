"""The main as a person meets it: exit codes, sentences, and nothing half-written."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spark import run, segments, session
from spark.errors import OutputBusy
from spark.jobs import JOBS
from spark.jobs.activity import plan
from spark.jobs.ingest import job as ingest
from spark.lease import hold
from spark.locations import location
from spark.request import JobRequest
from tests.spark.log import Log

ROOT = Path(__file__).parents[2]


@pytest.fixture
def export(tmp_path):
    log = Log()
    log.say(log.topic(log.channel()))
    return log.export(tmp_path / "in")[0]


def change(manifest, **fields):
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | fields))


def segment(manifest):
    return segments.read_manifest(manifest).path


DAMAGE = {
    10: ("is missing, but its manifest exists", lambda manifest: segment(manifest).unlink()),
    11: ("bytes; its manifest requires", lambda manifest: os.truncate(segment(manifest), 100)),
    12: ("has another hash", lambda manifest: change(manifest, sha256="0" * 64)),
    13: ("schema version 2", lambda manifest: change(manifest, schema_version=2)),
}


@pytest.mark.parametrize("code", DAMAGE)
def test_damaged_segment_ends_with_its_code_and_publishes_nothing(
    spark, make_request, export, tmp_path, code, monkeypatch, capsys
):
    words, damage = DAMAGE[code]
    damage(export)
    monkeypatch.setattr(session, "build", lambda *_: Kept(spark))
    assert run.main(["ingest", "--in", f"{tmp_path}/in", "--out", f"{tmp_path}/out"]) == code
    stderr = capsys.readouterr().err
    (sentence,) = [line for line in stderr.splitlines() if line.startswith("Error: ")]
    assert words in sentence
    assert "Traceback" not in stderr
    assert not (tmp_path / "out/silver").exists()


INGEST = ["ingest", "--in", "{0}/in", "--out", "{0}/out"]


class Kept:
    """The session of the tests, which outlives the main that would stop it."""

    def __init__(self, spark):
        self._spark = spark

    def __getattr__(self, name):
        return getattr(self._spark, name)

    def stop(self):
        pass


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["ingest", "--in", "{0}/no", "--out", "{0}/out"], 10, "is not a directory"),
        (["ingest", "--in", "{0}", "--out", "{0}/out"], 10, "neither exported segments"),
        (["ingest", "--in", "{0}/in", "--out", "{0}/file/x"], 15, "cannot be written"),
        ([*INGEST, "--report-to", "hub.example"], 2, "--report-to must be the URL"),
        (["activity", "--in", "{0}/in", "--from", "2026-02-02", "--to", "2026-02-01"], 14, "lies"),
        (["ingest", "--in", "http://127.0.0.1:9", "--out", "{0}/out"], 20, "cannot be reached"),
        (["ingest", "--in", "{0}/a[1]", "--out", "{0}/out"], 2, "as a pattern"),
        (["ingest", "--in", "{0}/in", "--out", "{0}/{{a,b}}"], 2, "as a pattern"),
        (["activity", "--in", "{0}/in", "--from", "-1", "--to", "0"], 2, "with --out"),
        (["audit", "--in", "http://127.0.0.1:9", "--out", "{0}/out"], 20, "cannot be reached"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_before_spark_starts(export, tmp_path, capsys, words, code, sentence):
    (tmp_path / "file").write_text("")
    assert run.main([word.format(tmp_path) for word in words]) == code
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("url", ["s3://bucket/lake", "hdfs:/lake", "file://other/lake"])
@pytest.mark.parametrize("argument", ["--in", "--out"])
def test_url_of_a_remote_place_is_refused(tmp_path, monkeypatch, capsys, argument, url):
    monkeypatch.chdir(tmp_path)
    words = {"--in": "in", "--out": "out"} | {argument: url}
    with pytest.raises(SystemExit):
        run.main(["ingest", *[word for pair in words.items() for word in pair]])
    assert f"{url} is not supported" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_url_of_a_file_is_its_path():
    assert location("file:///data/my%20lake") == location("/data/my lake") == Path("/data/my lake")


def test_export_without_events_is_an_empty_range(spark, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(session, "build", lambda *_: Kept(spark))
    (tmp_path / "in/events").mkdir(parents=True)
    words = ["--in", f"{tmp_path}/in", "--out", f"{tmp_path}/out", "--from", "-1", "--to", "0"]
    assert run.main(["activity", *words]) == 14
    assert "contains no events yet" in capsys.readouterr().err


def test_activity_ingests_new_segments_first_and_starts_no_spark_without_any(
    spark, tmp_path, monkeypatch, capsys
):
    """The second time with segments and tables in the same directory."""
    monkeypatch.setattr(session, "build", lambda *_: Kept(spark))
    log, both = Log(), tmp_path / "both"
    topic, exported = log.topic(log.channel()), 0
    for export, lake in ((tmp_path / "in", tmp_path / "out"), (both, both)):
        log.wait(days=1).say(topic)
        log.event("poll.opened", "poll", "p1", {}, "ch")
        log.export(export, after=exported)
        words = ["activity", "--in", f"{export}", "--out", f"{lake}", "--json"]
        assert run.main(words) == 0
        assert "events.known" in failed(capsys.readouterr().out)
        published = plan.gold(JobRequest(None, lake, lake, None, None)).current()
        rows = published.read(spark, "activity").collect()
        assert [row["messages"] for row in rows] == ([1] if lake != both else [1, 1])
        printed = without_spark(words)
        assert json.loads(printed)["published"] is None
        assert failed(printed) == ["events.known"]
        if lake != both:
            exported = log.last
            for folder in (export, lake):
                shutil.copytree(folder, both, dirs_exist_ok=True)


def failed(printed):
    return [check["name"] for check in json.loads(printed)["checks"] if check["failed"]]


def without_spark(words):
    """The output of a run in a process of its own, which must not import Spark."""
    script = "import sys; from spark import run; code = run.main(sys.argv[1:])"
    script += "; sys.exit(code or any('pyspark' in name for name in sys.modules))"
    command = [sys.executable, "-c", script, *words]
    return subprocess.check_output(command, text=True, cwd=ROOT)


def test_stack_comes_after_the_sentence(spark, export, tmp_path, monkeypatch, capsys):
    def broken(_):
        raise RuntimeError("SPARK-1: CANNOT_READ_FILE whatever")

    monkeypatch.setattr(session, "build", lambda *_: Kept(spark))
    monkeypatch.setattr(ingest, "run", broken)
    assert run.main(["ingest", "--in", f"{tmp_path}/in", "--out", f"{tmp_path}/out"]) == 11
    stderr = capsys.readouterr().err
    assert stderr.index("Error: a segment cannot be read") < stderr.index("Traceback")


def test_every_job_has_three_files_and_help():
    for name in JOBS:
        files = {path.name for path in (ROOT / "spark/jobs" / name).glob("*.py")}
        assert files >= {"__init__.py", "schema.py", "transforms.py", "job.py"}
        help_run = subprocess.run(
            [sys.executable, ROOT / "spark/run.py", name, "--help"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "--out" in help_run.stdout


def test_image_without_object_storage_is_named():
    words = "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    error = run.translate(RuntimeError(f"java.lang.ClassNotFoundException: {words}"))
    assert (error.exit_code, "agentlip-spark-s3" in error.message) == (20, True)


def test_second_job_in_a_directory_loses_with_a_sentence(export, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    with hold(tmp_path / "out", OutputBusy("")):
        assert run.main(["ingest", "--in", f"{tmp_path}/in", "--out", f"{tmp_path}/out"]) == 16
    assert f"another job writes to {tmp_path}/out" in capsys.readouterr().err
    assert not (tmp_path / "out/silver").exists()


def record(tmp_path, job="ingest"):
    return json.loads((tmp_path / f"out/runs/{job}.json").read_text())


def test_failed_run_leaves_its_record_and_a_wrong_command_leaves_none(export, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    segment(export).unlink()
    words = ["ingest", "--in", f"{tmp_path}/in", "--out", f"{tmp_path}/out"]
    assert run.main([*words, "--conf", "nonsense"]) == 2
    assert not (tmp_path / "out/runs").exists()
    assert run.main(["ingest", "--in", f"{tmp_path}/none", "--out", f"{tmp_path}/out"]) == 10
    left = record(tmp_path)
    assert (left["job"], left["outcome"], left["exit_code"]) == ("ingest", "failed", 10)
    assert left["error"] == f"{tmp_path}/none is not a directory"
    assert left["started_at"] <= left["finished_at"]


def test_report_that_does_not_arrive_is_a_warning(spark, export, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(session, "build", lambda *_: Kept(spark))
    words = ["ingest", "--in", f"{tmp_path}/in", "--out", f"{tmp_path}/out"]
    assert run.main([*words, "--report-to", "http://127.0.0.1:9"]) == 0
    assert "Warning: http://127.0.0.1:9 cannot be reached" in capsys.readouterr().err
    published = record(tmp_path)
    assert (published["outcome"], published["counts"]["rows"]) == ("ok", 3)
    assert run.main(words) == 0
    assert record(tmp_path)["outcome"] == "nothing_new"
