"""`agentlip report activity`: sums, table, pictures, one page, and bad input."""

import json
import os
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from appliance.export.activity import report, weighted_median
from tests.support.commands import agentlip, environment
from tests.support.gold import answered, did, write
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
                did("ann", 5, replied=2, first_reply_median_seconds=10.0, edits=1),
                did("ben", 3, replied=1, first_reply_median_seconds=40.0, deletes=1),
            ],
            "2026-11-20": [
                did("ann", 2, replied=3, first_reply_median_seconds=20.0),
                did(NASTY, 4, topic_id="topic_2", topic=None, moves=2),
                did("cid", 9, channel_id="ch_2", channel="other", topic_id="topic_3", topic="T"),
            ],
        },
        {
            "2026-11-19": [answered("ben", "ann", 4, 9.0)],
            "2026-11-20": [answered("ann", NASTY, 1, 1)],
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
    assert (ann["edits"], ann["replied"], ann["reply_seconds"], ann["active_seconds"]) == (
        1, 5, 20.0, 120.0,
    )  # fmt: skip
    assert answer["topics"][1]["name"] == "T"
    assert {topic["name"] for topic in answer["topics"]} == {"Builds", "T", "topic_2"}
    assert answer["pairs"][0] == {
        "sender": "ben", "answers": "ann", "replies": 4, "median_seconds": 9.0,
    }  # fmt: skip


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
    assert "ben answers ann" in ask(filled, "--by", "pair").out
    assert "2026-11-19" in ask(filled, "--by", "day").out.splitlines()[2]
    assert "3 more: --top 4" in ask(filled, "--top", "1").err
    assert ask(filled, "--by", "moon").code == 1


def test_charts_and_page_are_complete_and_escape_names(filled):
    done = ask(filled, "--charts", "pictures", "--html", "report.html")
    assert done.code == 0, done
    pictures = filled.path / "pictures"
    names = ["days", "pairs", "replies", "senders", "topics"]
    files = sorted(path.name for path in pictures.iterdir())
    assert files == sorted(f"activity-{name}.{kind}" for name in names for kind in ("png", "svg"))
    for name in names:
        assert (pictures / f"activity-{name}.png").read_bytes().startswith(b"\x89PNG")
        xml.parse(pictures / f"activity-{name}.svg")
    text = (filled.path / "report.html").read_text("utf-8")
    assert text.count("<svg") == 5
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "http-equiv" in text
    before = (pictures / "activity-days.svg").read_bytes()
    assert ask(filled, "--charts", "pictures").code == 0
    assert (pictures / "activity-days.svg").read_bytes() == before


def spoil(what: str, version: Path) -> None:
    file = next(version.glob("activity/*/*.parquet"))
    manifest = json.loads((version / "manifest.json").read_text())
    name = str(file.relative_to(version))
    if what == "missing":
        file.unlink()
    elif what == "torn":
        os.truncate(file, 50)
    elif what == "not parquet":
        file.write_bytes(b"x" * manifest["files"][name])
    elif what == "torn manifest":
        os.truncate(version / "manifest.json", 20)
    elif what == "version":
        manifest["schema"] = "activity-2"
        (version / "manifest.json").write_text(json.dumps(manifest))
    elif what == "nothing":
        (version.parent / "current").unlink()


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("missing", 10, "in the manifest but does not exist"),
        ("nothing", 10, "contains no activity tables"),
        ("torn", 11, "its manifest requires"),
        ("not parquet", 11, "cannot be read"),
        ("torn manifest", 11, "truncated"),
        ("version", 13, "activity-2"),
    ],
)
def test_invalid_tables_are_reported_and_nothing_is_written(filled, what, code, words):
    spoil(what, filled.version)
    done = ask(filled, "--charts", "pictures", "--html", "report.html")
    assert (done.code, words in done.err) == (code, True), done
    assert "Traceback" not in done.err
    assert not (filled.path / "pictures").exists()
    assert not (filled.path / "report.html").exists()


def test_invalid_days_and_output_paths_are_reported(filled):
    assert ask(filled, "--from", "2027-01-01").code == 14
    assert ask(filled, "--channel", "nobody").code == 14
    assert ask(filled, "--from", "yesterday").code == 1
    (filled.path / "file").write_text("in the way")
    assert ask(filled, "--charts", "file/x").code == 15
    done = ask(filled, "--html", "nowhere/report.html")
    assert (done.code, done.out) == (15, "")


def test_charts_without_matplotlib_name_the_missing_package(filled):
    hidden = filled.path / "hidden" / "matplotlib"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError")
    without = {"PYTHONPATH": f"{hidden.parent}{os.pathsep}{environment()['PYTHONPATH']}"}
    assert ask(filled, **without).code == 0
    done = ask(filled, "--charts", "pictures", **without)
    assert (done.code, "agentlip[report]" in done.err) == (18, True)
    assert not (filled.path / "pictures").exists()


@given(some.lists(some.tuples(some.floats(0, 100), some.integers(1, 9))))
def test_weighted_median_has_half_of_the_weight_on_either_side(pairs):
    median = weighted_median(pairs)
    if not pairs:
        assert median is None
        return
    half = sum(weight for _, weight in pairs) / 2
    assert sum(weight for value, weight in pairs if value < median) <= half
    assert sum(weight for value, weight in pairs if value > median) <= half


def test_report_accepts_the_output_folder_of_the_job(filled):
    result = report(filled.datadir.dir, None, None, None, 5)
    assert result.total.messages == 23
