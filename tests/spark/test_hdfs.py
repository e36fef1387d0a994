"""Jobs in HDFS: the same tables, and one writer at a time."""

import json
import signal
import subprocess
import sys

import pytest
from hdfs_native import Client

from spark import run, session
from spark.errors import OutputBusy
from spark.lease import FileLease
from spark.locations import location
from tests.spark import lakes
from tests.spark.test_object_storage import rows_of
from tests.spark.test_run import Kept, without_spark
from tests.support import hdfs

pytestmark = pytest.mark.slow  # starts a name node and a data node
HOLD = """
import sys
from spark.errors import OutputBusy
from spark.lease import FileLease
from spark.locations import location
held = FileLease(location(sys.argv[1]), OutputBusy("busy"))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with hdfs.hdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


def job(capsys, *words, code=0):
    assert run.main([*words, "--json", "--quiet"]) == code, capsys.readouterr().err
    out, err = capsys.readouterr()
    return json.loads(out) if out.strip() else err


def test_tables_in_hdfs_have_what_was_said(url, spark, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(session, "build", lambda *_: Kept(spark))
    log, *_ = lakes.conversation()
    log.export(tmp_path / "in")
    log.snapshot(tmp_path / "in")
    hdfs.upload(url, tmp_path / "in", "jobs/in")
    words = ["--in", f"{url}/jobs/in", "--out", f"{url}/jobs/lake"]
    first = job(capsys, "activity", *words)
    assert first["published"] == f"{url}/jobs/lake/gold/activity"
    assert first["counts"]["messages"] == 3
    current = {row["content_raw"] for row in rows_of(spark, words[3], "messages")
               if row["valid_to"] is None}  # fmt: skip
    assert current == {"[deleted]", "two", "three"}
    assert json.loads(without_spark(["activity", *words, "--json"]))["published"] is None
    assert job(capsys, "audit", *words[:3], f"{url}/jobs/audit")["counts"]["differences"] == 0
    location(f"{url}/order.json").write_bytes(b'{"schema_version":1,"senders":["bob"]}')
    erased = job(capsys, "erase", *words, "--order", f"{url}/order.json")
    assert erased["counts"]["messages"] == 1
    job(capsys, "erase", *words, "--verify", erased["published"])
    left = {row["content_raw"] for row in rows_of(spark, words[3], "messages")}
    assert "two" not in left
    assert {"one", "three"} <= left
    names = hdfs.names(url, "jobs/lake")
    assert "runs/activity.json" in names
    assert not [name for name in names if name.endswith(".part") or ".probe" in name]


def test_second_driver_loses_with_a_sentence_and_changes_nothing(url, tmp_path, capsys):
    lakes.conversation()[0].export(tmp_path / "in")
    hdfs.upload(url, tmp_path / "in", "two/in")
    words = ["ingest", "--in", f"{url}/two/in", "--out", f"{url}/two/lake"]
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, f"{url}/two/lake/.lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with other:
        assert other.stdout.readline() == b"held\n"
        assert "another job writes to hdfs://" in job(capsys, *words, code=16)
        other.send_signal(signal.SIGKILL)
    assert hdfs.names(url, "two/lake") == [".lock", "runs/ingest.json"]
    with pytest.raises(OutputBusy):  # the name node waits a minute for the killed one
        FileLease(location(f"{url}/two/lake/.lock"), OutputBusy("busy"))


def test_lease_that_was_taken_over_is_not_renewed(url):
    path = location(f"{url}/lost/.lock")
    lost, released = (
        FileLease(path, OutputBusy("busy")),
        FileLease(location(f"{url}/released/.lock"), OutputBusy("busy")),
    )
    lost.renew()
    released.release()
    with FileLease(released.path, OutputBusy("busy")) as again:
        again.renew()
    client = Client(url)
    client.delete("/lost/.lock")
    with pytest.raises(OutputBusy, match="busy"):
        lost.renew()
    lost.release()


def test_name_node_that_does_not_answer_is_named(capsys):
    words = ["ingest", "--in", "hdfs://127.0.0.1:9/in", "--out", "hdfs://127.0.0.1:9/out"]
    refused = job(capsys, *words, code=20)
    assert "hdfs://127.0.0.1:9/in" in refused
    assert "can't be reached" in refused
