"""`agentlip report`: sums, and bad input."""

import os
from pathlib import Path

import pytest

from tests.support.commands import agentlip
from tests.support.gold_tables import (
    answered,
    did,
    record_run,
    write,
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


def spoil(what: str, root: Path) -> None:
    file = next(root.glob("activity/day=*/*.parquet"))
    if what == "missing":
        file.unlink()
    elif what == "torn":
        os.truncate(file, 50)
    elif what == "version":
        record_run(root, "activity-1", {}, 2)


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("missing", 10, "does not exist"),
        ("torn", 11, "cannot be read"),
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
