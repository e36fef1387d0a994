"""`agentlip report`: sums, and bad input."""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.commands import agentlip
from tests.support.gold import (
    answered,
    did,
    died,
    ended,
    record_run,
    took,
    write,
    write_delivery,
)  # fmt: skip
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow

NASTY = "<script>alert('x')</script> & $x_1$ \u202e"


@pytest.fixture
def filled(tmp_path):
    workspace = Filled(tmp_path / "house", messages=0)
    workspace.version = write(
        workspace.datadir.dir / "gold",
        {
            "2026-11-19": [
                did("ann", 5, waits=[10.0, 10.0], edits=1),
                did("ben", 3, waits=[40.0], deletes=1),
            ],
            "2026-11-20": [
                did("ann", 2, waits=[20.0, 20.0, 20.0]),
                did(NASTY, 4, topic_id="topic_2", topic="", moves=2),
                did("cid", 9, channel_id="ch_2", channel="<b>other", topic_id="topic_3", topic="T"),
            ],
        },
        {
            "2026-11-19": [answered("ben", "ann", [9.0] * 4)],
            "2026-11-20": [answered("ann", NASTY, [1.0])],
        },
    )
    return workspace


def ask(filled, *more, **env):
    return agentlip("report", "activity", *more, cwd=filled.path, **env)


def test_report_sums_match_the_rows(filled):
    answer = ask(filled, "--json").json
    assert (answer["first"], answer["last"]) == ("2026-11-19", "2026-11-20")
    assert answer["total"]["messages"] == 23
    assert [(day["key"], day["messages"]) for day in answer["days"]] == [
        ("2026-11-19", 8),
        ("2026-11-20", 15),
    ]
    assert [(row["name"], row["messages"]) for row in answer["senders"]] == [
        ("cid", 9),
        ("ann", 7),
        (NASTY, 4),
        ("ben", 3),
    ]
    ann = answer["senders"][1]
    assert (ann["edits"], ann["replied"], ann["active_seconds"]) == (1, 5, 120.0)
    error = answer["quantile_error"]
    assert error == pytest.approx(0.01, rel=0.02)
    assert ann["reply_seconds"] == pytest.approx(20, rel=error)
    assert answer["total"]["reply_p95_seconds"] == pytest.approx(40, rel=error)
    assert answer["topics"][1]["name"] == "T"
    assert {topic["name"] for topic in answer["topics"]} == {"Builds", "T", "topic_2"}
    pair = answer["pairs"][0]
    assert (pair["sender"], pair["answers"], pair["replies"]) == ("ben", "ann", 4)
    assert pair["median_seconds"] == pair["p95_seconds"] == pytest.approx(9, rel=error)


def test_page_escapes_the_name_of_its_channel(filled):
    page = filled.path / "page.html"
    agentlip("report", "html", "--out", page, "--channel", "<b>other", "--json", cwd=filled.path)
    text = page.read_text("utf-8")
    assert "&lt;b&gt;other" in text
    assert "<b>other" not in text


def spoil(what: str, root: Path) -> None:
    file = next(root.glob("activity/day=*/*.parquet"))
    if what == "missing":
        file.unlink()
    elif what == "torn":
        os.truncate(file, 50)
    elif what == "not parquet":
        file.write_bytes(b"x" * file.stat().st_size)
    elif what == "torn log":
        os.truncate(root / "runs/_delta_log/00000000000000000000.json", 20)
    elif what == "version":
        record_run(root, "activity-1", {}, 2)
    elif what == "nothing":
        shutil.rmtree(root / "runs")


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("missing", 10, "does not exist"),
        ("nothing", 10, "contains no activity tables"),
        ("torn", 11, "cannot be read"),
        ("not parquet", 11, "cannot be read"),
        ("torn log", 11, "cannot be read"),
        ("version", 13, "run the job again"),
    ],
)
def test_invalid_tables_are_reported_and_nothing_is_written(filled, what, code, words):
    spoil(what, filled.version)
    assert ask(filled).code == code
    done = agentlip("report", "html", "--out", "report.html", cwd=filled.path)
    assert (done.code, words in done.err) == (code, True), done
    assert "Traceback" not in done.err
    assert not (filled.path / "report.html").exists()


def test_invalid_days_and_output_paths_are_reported(filled):
    assert ask(filled, "--from", "2027-01-01").code == 14
    assert ask(filled, "--channel", "nobody").code == 14
    assert ask(filled, "--from", "yesterday").code == 1
    done = agentlip("report", "html", "--out", "nowhere/report.html", cwd=filled.path)
    assert (done.code, done.out) == (15, "")


@pytest.fixture
def delivered(filled):
    filled.deliveries = write_delivery(
        filled.datadir.dir / "gold",
        {
            "2026-11-20": [
                took("mesh:north", "accept_to_ack", [0.1] * 98 + [3.0] * 2),
                took("mesh:north", "accept_to_deliver", [0.01]),
                took(NASTY, "accept_to_ack", [7.0], log="courier", objective_seconds=5.0),
            ],
            "2026-11-21": [took("mesh:north", "accept_to_ack", [0.1] * 100, objective_seconds=2.0)],
        },
        {"2026-11-20": [ended("mesh:north", 100, failed=3, dead=2), ended("mail:ops", 1)]},
        {
            "2026-11-20": [died("mesh:north", "HTTP <n>", 1, example="HTTP 500")],
            "2026-11-21": [died("mesh:north", "HTTP <n>", 1), died(NASTY, NASTY, 1)],
        },
    )
    return filled


def ask_delivery(filled, *more):
    return agentlip("report", "delivery", *more, cwd=filled.path)


def test_delivery_report_sums_stages_outcomes_and_causes(delivered):
    answer = ask_delivery(delivered, "--json").json
    assert (answer["first"], answer["last"], answer["log"]) == ("2026-11-20", "2026-11-21", None)
    stages = {(row["destination"], row["stage"]): row for row in answer["latency"]}
    whole = stages["mesh:north", "accept_to_ack"]
    assert (whole["count"], whole["within_objective"], whole["attainment"]) == (200, 198, 0.99)
    assert whole["objective_seconds"] == 2.0
    error = answer["quantile_error"]
    assert whole["p50_seconds"] == whole["p99_seconds"] == pytest.approx(0.1, rel=error)
    assert stages[NASTY, "accept_to_ack"]["attainment"] == 0.0
    assert answer["outcomes"][0] == {
        "log": "outbox", "destination": "mesh:north", "accepted": 100, "delivered": 100,
        "acked": 100, "attempts": 100, "failed": 3, "dead": 2,
    }  # fmt: skip
    assert answer["dead_letters"][0] == {
        "log": "outbox", "destination": "mesh:north", "cause": "HTTP <n>", "count": 2,
        "example": "HTTP 500",
    }  # fmt: skip
    one_day = ask_delivery(delivered, "--json", "--to", "2026-11-20").json
    assert one_day["latency"][-1]["p99_seconds"] == pytest.approx(3, rel=error)
