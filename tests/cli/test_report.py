"""`agentlip report`: sums, tables, one page, and bad input."""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.commands import agentlip, environment
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
                did("cid", 9, channel_id="ch_2", channel="other", topic_id="topic_3", topic="T"),
            ],
        },
        {
            "2026-11-19": [answered("ben", "ann", [9.0] * 4)],
            "2026-11-20": [answered("ann", NASTY, [1.0])],
        },
    )
    return workspace


def page(filled):
    """The page of `agentlip report html`."""
    done = agentlip("report", "html", "--out", "page.html", "--json", cwd=filled.path)
    path = filled.path / "page.html"
    assert done.json == {"path": "page.html", "bytes": path.stat().st_size, "period": "day"}
    return path.read_text("utf-8")


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


def test_report_filters_days_channels_and_rows(filled):
    single = ask(filled, "--json", "--from", "2026-11-20", "--to", "2026-11-20").json
    assert single["total"]["messages"] == 15
    for name in ("other", "ch_2"):
        assert ask(filled, "--json", "--channel", name).json["total"]["messages"] == 9
    top = ask(filled, "--json", "--top", "1").json
    assert [sender["name"] for sender in top["senders"]] == ["cid"]
    assert top["left_out"] == {"channels": 1, "topics": 2, "senders": 3, "pairs": 1}


def test_table_shows_the_rows_chosen_by_a_flag(filled):
    done = ask(filled)
    lines = done.out.splitlines()
    assert lines[0] == "2026-11-19 to 2026-11-20 (UTC): 23 messages"
    assert lines[1].split()[:2] == ["MESSAGES", "EDITS"]
    assert lines[2].split()[0] == "9"
    assert lines[2].endswith("cid")
    assert "\u202e" not in done.out
    assert "REPLIED: messages that another sender followed in the topic within a day" in done.err
    assert "(±1%)" in done.err
    assert lines[3].split()[5:9] == ["20.1", "s", "20.1", "s"]
    assert "ben answers ann" in ask(filled, "--by", "pair").out
    assert "2026-11-19" in ask(filled, "--by", "day").out.splitlines()[2]
    assert "3 more: --top 4" in ask(filled, "--top", "1").err
    assert ask(filled, "--by", "moon").code == 1


def test_page_escapes_names(filled):
    text = page(filled)
    assert "<script>alert('x')</script>" not in text
    assert "\\u003cscript>" in text
    assert "Content-Security-Policy" in text


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
        ("missing", 10, "is missing, but its manifest exists"),
        ("nothing", 10, "contains no activity tables"),
        ("torn", 11, "its manifest requires"),
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


def test_report_without_pyarrow_names_what_to_install(filled):
    hidden = filled.path / "hidden" / "pyarrow"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError")
    without = {"PYTHONPATH": f"{hidden.parent}{os.pathsep}{environment()['PYTHONPATH']}"}
    done = ask(filled, **without)
    assert (done.code, "agentlip[export]" in done.err) == (18, True)


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


def test_delivery_report_filters_logs_and_rows(delivered):
    courier = ask_delivery(delivered, "--json", "--log", "courier").json
    assert [row["log"] for row in courier["latency"]] == ["courier"]
    assert (courier["outcomes"], courier["dead_letters"]) == ([], [])
    top = ask_delivery(delivered, "--json", "--top", "1").json
    assert top["left_out"] == {"latency": 2, "outcomes": 1, "dead_letters": 1}
    assert ask_delivery(delivered, "--log", "broker").code == 14
    assert ask_delivery(delivered, "--log", "moon").code == 1
    assert ask_delivery(delivered, "--by", "moon").code == 1


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("stage", ["OBJECTIVE", "99.0 %", "accept_to_ack", "COUNT: messages whose stage ended"]),
        ("destination", ["ATTEMPTS", "mail:ops", "DEAD: messages that were given up"]),
        ("cause", ["HTTP <n>", "DEAD"]),
    ],
)
def test_delivery_table_says_what_it_counts(delivered, by, words):
    done = ask_delivery(delivered, "--by", by)
    assert done.code == 0
    assert [word for word in words if word not in done.out + done.err] == []
    assert "\u202e" not in done.out
