"""From an empty workspace to a report in a browser: `ops/up --with-spark` and one message."""

import json
import subprocess

import pytest

from tests.support.chromium import browser_page
from tests.support.commands import ROOT, environment
from tests.support.until import until

SECONDS_MAX = 1200  # five sessions of Spark on a busy machine
CHAIN = ("ingest", "activity", "delivery", "digest", "report")
BIN = ROOT / ".venv-spark/bin"
# Export while it serves, and close segments soon.
SOON = {"AGENTLIP_EXPORT__EXPORT_SECONDS": "1", "AGENTLIP_EXPORT__SEGMENT_OPEN_SECONDS": "1"}


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


def latest(workspace, job):
    runs = agentlip(workspace, "jobs", "history", job)
    return agentlip(workspace, "jobs", "show", runs[0]["id"]) if runs else {"state": "none"}


def progress_of(run):
    return run["attempts"][-1]["tail"] or "" if run.get("attempts") else ""


def test_new_segments_lead_to_a_report_in_the_browser(workspace):
    up = [ROOT / "ops/up", "--with-spark", "--workspace", workspace, "--port", "0", "--no-limits"]
    subprocess.run(up, env=environment(**SOON), check=True, timeout=SECONDS_MAX)
    assert sorted(path.stem for path in (workspace / "jobs").iterdir()) == sorted(CHAIN)
    agentlip(workspace, "channel", "create", "plans")
    agentlip(workspace, "topic", "create", "--channel", "plans", "budget")
    where = ("--channel", "plans", "--topic", "budget", "--sender", "ann")
    agentlip(workspace, "msg", "send", *where, "--content", "How much?")

    def is_working():
        run = latest(workspace, "ingest")
        return run["state"] == "running" and "ingest: " in progress_of(run)

    until(is_working, SECONDS_MAX, "its progress is shown while it runs", 0.5)
    until(lambda: latest(workspace, "report")["state"] == "succeeded", SECONDS_MAX, "a report", 2)
    runs = {job: latest(workspace, job) for job in CHAIN}
    assert {job: run["cause"] for job, run in runs.items()} == {
        job: "event" if job == "ingest" else "after" for job in CHAIN
    }
    assert runs["delivery"]["exit_code"] == 10, "nothing was sent"
    rows = {job["name"]: job for job in agentlip(workspace, "jobs", "list")}
    assert rows["ingest"]["reported"]["counts"]["rows"] > 0
    with browser_page() as tab:
        tab.open((workspace / "report.html").as_uri())
        text = tab.evaluate("document.body.innerText")
        assert "plans" in text
        assert "ann" in text
        assert tab.problems == []
