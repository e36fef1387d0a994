"""The notebook and the SQL examples run on a lake, and are right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.shared.histogram import quantile
from spark.jobs.ingest import job as ingest
from spark.progress import ProgressReporter
from spark.request import JobRequest
from spark.tables import versions
from tests.spark import engine
from tests.spark.conftest import NOW
from tests.spark.log import Log
from tests.support.gold_tables import (
    answered,
    buckets,
    did,
    died,
    ended,
    took,
    write,
    write_delivery,
)

EXAMPLES = Path(__file__).parents[2] / "spark" / "examples"
SECONDS_MAX = 600
WAITS = [1.0, 2.0, 3.0, 50.0, 4000.0]
OTHER = {"channel_id": "ch_2", "channel": "ops", "topic_id": "topic_2", "topic": "Runs"}


def fill(lake):
    write(
        lake / "gold",
        {"2026-02-01": [did("ann", 5, waits=WAITS[:3])],
         "2026-02-02": [did("ben", 2, waits=WAITS[3:]), did("ann", 9, **OTHER)]},
        {"2026-02-01": [answered("ben", "ann", [1.0])],
         "2026-02-02": [answered("ben", "ann", [9.0, 9.0])]},
    )  # fmt: skip
    write_delivery(
        lake / "gold",
        {"2026-02-01": [took("mesh:north", "accept_to_ack", [0.5, 0.5, 0.5, 9.0])]},
        {"2026-02-01": [ended("mesh:north", 4, dead=1)]},
        {"2026-02-01": [died("mesh:north", "HTTP <n>", 1, example="HTTP 500")],
         "2026-02-02": [died("mesh:north", "HTTP <n>", 2, example="HTTP 503")]},
    )  # fmt: skip


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """Tables of a real ingest, and gold of a few rows."""
    folder = tmp_path_factory.mktemp("lake")
    log = Log()
    topic = log.topic(log.channel(), "builds")
    edited = log.say(topic, "ann")
    log.say(topic, "ben")
    log.edit(edited, "changed")
    log.export(folder / "in")
    progress = ProgressReporter(quiet=True)
    ingest.run(JobRequest(spark=spark, source=folder / "in", out=folder / "out", progress=progress,
                          now=NOW))  # fmt: skip
    fill(folder / "out")
    return folder / "out"


def statements():
    text = (EXAMPLES / "lake.sql").read_text(encoding="utf-8")
    return [statement for statement in text.split(";") if statement.strip()]


def cells():
    notebook = json.loads((EXAMPLES / "lake.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_statements_answer_with_the_sums_of_the_rows(spark, lake):
    for folder in (lake / "silver", *(lake / "gold").iterdir()):
        for table, version in versions(folder).items():
            name = table if folder.name in ("silver", table) else f"{folder.name}_{table}"
            reader = spark.read.format("delta").option("versionAsOf", version)
            reader.load(str(folder / table)).createOrReplaceTempView(name)
    topic, changed, busiest, waits, pairs, attainment, causes = [
        [tuple(row) for row in spark.sql(statement).collect()] for statement in statements()
    ]
    contents = {sender: content for _, sender, content in topic}
    assert (contents.keys(), contents["ann"]) == ({"ann", "ben"}, "changed")
    assert [row[2] for row in changed] == [1, 0]
    assert busiest == [("ops", "Runs", 9, 0), ("general", "Builds", 7, 5)]
    p95 = quantile(buckets(*WAITS), 0.95)
    assert waits == [("ch_1", 5, round(p95, 3))]
    assert pairs == [("ben", "ann", 3)]
    assert attainment == [("outbox", "mesh:north", "accept_to_ack", 4, 0.75)]
    assert causes == [("outbox", "mesh:north", "HTTP <n>", 3, "HTTP 503")]


def test_notebook_has_no_stored_output():
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells())


def test_notebook_runs_without_error(lake, tmp_path):
    script = tmp_path / "notebook.py"
    script.write_text("\n".join("".join(cell["source"]) for cell in cells()), encoding="utf-8")
    settings = {"AGENTLIP_LAKE": str(lake), "SPARK_MASTER": "local[1]",
                **engine.configure(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}  # fmt: skip
    done = subprocess.run(
        [sys.executable, script], cwd=EXAMPLES, env=os.environ | settings, capture_output=True,
        text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "HTTP 503" in done.stdout
