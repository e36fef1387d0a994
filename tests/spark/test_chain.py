"""From an empty workspace to a report in a browser: `ops/up --with-spark` and one message."""

import json
import subprocess
import tomllib

import pytest

from tests.spark import engine
from tests.support.chromium import browser_page
from tests.support.commands import ROOT, environment
from tests.support.until import until

SECONDS_MAX = 1200  # five sessions of Spark on a busy machine
CHAIN = ("ingest", "activity", "delivery", "digest", "report")
BIN = ROOT / ".venv-spark/bin"
# Export while it serves, and close segments soon.
SOON = {"AGENTLIP_EXPORT__SEGMENT_OPEN_SECONDS": "1"}


@pytest.fixture
def workspace(tmp_path):
    yield tmp_path / "hub"
    subprocess.run([BIN / "agentlipd", "down", "--workspace", tmp_path / "hub"], timeout=120)


def agentlip(workspace, *words):
    done = subprocess.run(
        [BIN / "agentlip", "--workspace", workspace, *words, "--json"],
        env=environment(), capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def list_runs(workspace, job, state):
    """Those in the state, newest first."""
    runs = agentlip(workspace, "jobs", "history", job)
    return [agentlip(workspace, "jobs", "show", run["id"]) for run in runs if run["state"] == state]


def test_new_segments_lead_to_a_report_in_the_browser(workspace, tmp_path):
    command = [str(BIN / "python"), str(ROOT / "spark/run.py")]
    quick = [f"{name}={value}" for name, value in engine.configure(tmp_path).items()]
    settings = SOON | {"AGENTLIP_JOBS__SPARK": json.dumps(["env", *quick, *command])}
    up = [ROOT / "ops/up", "--with-spark", "--workspace", workspace, "--port", "0", "--no-limits"]
    subprocess.run(up, env=environment(**settings), check=True, timeout=SECONDS_MAX)
    written = tomllib.loads((workspace / "agentlip.toml").read_text())
    assert written["jobs"]["spark"] == ["env", "SPARK_LOCAL_IP=127.0.0.1", *command]
    assert sorted(path.stem for path in (workspace / "jobs").iterdir()) == sorted(CHAIN)
    agentlip(workspace, "channel", "create", "plans")
    agentlip(workspace, "topic", "create", "--channel", "plans", "budget")
    where = ("--channel", "plans", "--topic", "budget", "--sender", "ann")
    agentlip(workspace, "msg", "send", *where, "--content", "How much?")

    def shows_progress():
        runs = list_runs(workspace, "ingest", "running")
        return any("ingest: " in attempt["tail"] for run in runs for attempt in run["attempts"])

    until(shows_progress, SECONDS_MAX, "the stages of a running job", 0.5)
    until(lambda: list_runs(workspace, "report", "succeeded"), SECONDS_MAX, "a report", 2)
    runs = {job: list_runs(workspace, job, "succeeded")[-1] for job in CHAIN}
    assert {job: run["cause"] for job, run in runs.items()} == {
        job: "event" if job == "ingest" else "after" for job in CHAIN
    }
    assert runs["delivery"]["exit_code"] == 0, "it counts the runs before it"
    rows = {job["name"]: job for job in agentlip(workspace, "jobs", "list")}
    assert rows["ingest"]["reported"]["exit_code"] == 0
    with browser_page() as tab:
        tab.open((workspace / "report.html").as_uri())
        text = tab.evaluate("document.body.innerText")
        assert "plans" in text
        assert "ann" in text
        assert "ingest" in text, "the run of a job, as a delivery"
        assert tab.problems == []
