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
def place(tmp_path):
    house = Filled(tmp_path / "house", messages=0)
    house.version = write(
        house.datadir.dir / "gold",
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
    return house


def ask(place, *more, **env):
    return agentlip("report", "activity", *more, cwd=place.path, **env)


def test_sums_are_those_of_the_rows(place):
    found = ask(place, "--json").json
    assert (found["first"], found["last"]) == ("2026-11-19", "2026-11-20")
    assert found["total"]["messages"] == 23
    assert [(one["key"], one["messages"]) for one in found["days"]] == [
        ("2026-11-19", 8),
        ("2026-11-20", 15),
    ]
    assert [(one["name"], one["messages"]) for one in found["senders"]] == [
        ("cid", 9),
        ("ann", 7),
        (NASTY, 4),
        ("ben", 3),
    ]
    ann = found["senders"][1]
    assert (ann["edits"], ann["replied"], ann["reply_seconds"], ann["active_seconds"]) == (
        1, 5, 20.0, 120.0,
    )  # fmt: skip
    assert found["topics"][1]["name"] == "T"
    assert {one["name"] for one in found["topics"]} == {"Builds", "T", "topic_2"}
    assert found["pairs"][0] == {
        "sender": "ben", "answers": "ann", "replies": 4, "median_seconds": 9.0,
    }  # fmt: skip


def test_days_and_channels_and_the_number_of_rows_can_be_chosen(place):
    one_day = ask(place, "--json", "--from", "2026-11-20", "--to", "2026-11-20").json
    assert one_day["total"]["messages"] == 15
    for name in ("other", "ch_2"):
        assert ask(place, "--json", "--channel", name).json["total"]["messages"] == 9
    top = ask(place, "--json", "--top", "1").json
    assert [one["name"] for one in top["senders"]] == ["cid"]
    assert top["left_out"] == {"channels": 1, "topics": 2, "senders": 3, "pairs": 1}


def test_the_table_is_for_people_and_its_rows_are_chosen_by_a_flag(place):
    done = ask(place)
    lines = done.out.splitlines()
    assert lines[0] == "2026-11-19 to 2026-11-20 (UTC): 23 messages"
    assert lines[1].split()[:2] == ["MESSAGES", "EDITS"]
    assert lines[2].split()[0] == "9"
    assert lines[2].endswith("cid")
    assert "\u202e" not in done.out
    assert "ben answers ann" in ask(place, "--by", "pair").out
    assert "2026-11-19" in ask(place, "--by", "day").out.splitlines()[2]
    assert "3 more: --top 4" in ask(place, "--top", "1").err
    assert ask(place, "--by", "moon").code == 1


def test_pictures_and_the_page_are_whole_and_names_in_them_are_only_text(place):
    done = ask(place, "--charts", "pictures", "--html", "report.html")
    assert done.code == 0, done
    pictures = place.path / "pictures"
    names = ["days", "pairs", "replies", "senders", "topics"]
    found = sorted(path.name for path in pictures.iterdir())
    assert found == sorted(f"activity-{name}.{kind}" for name in names for kind in ("png", "svg"))
    for name in names:
        assert (pictures / f"activity-{name}.png").read_bytes().startswith(b"\x89PNG")
        xml.parse(pictures / f"activity-{name}.svg")
    text = (place.path / "report.html").read_text("utf-8")
    assert text.count("<svg") == 5
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "http-equiv" in text
    before = (pictures / "activity-days.svg").read_bytes()
    assert ask(place, "--charts", "pictures").code == 0
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
        ("missing", 10, "in the manifest, and not there"),
        ("nothing", 10, "holds no activity tables"),
        ("torn", 11, "its manifest says"),
        ("not parquet", 11, "is torn"),
        ("torn manifest", 11, "cut off"),
        ("version", 13, "activity-2"),
    ],
)
def test_bad_tables_end_in_one_sentence_and_nothing_is_written(place, what, code, words):
    spoil(what, place.version)
    done = ask(place, "--charts", "pictures", "--html", "report.html")
    assert (done.code, words in done.err) == (code, True), done
    assert "Traceback" not in done.err
    assert not (place.path / "pictures").exists()
    assert not (place.path / "report.html").exists()


def test_an_empty_range_bad_days_and_a_bad_place_end_in_one_sentence(place):
    assert ask(place, "--from", "2027-01-01").code == 14
    assert ask(place, "--channel", "nobody").code == 14
    assert ask(place, "--from", "yesterday").code == 1
    (place.path / "file").write_text("in the way")
    assert ask(place, "--charts", "file/x").code == 15
    done = ask(place, "--html", "nowhere/report.html")
    assert (done.code, done.out) == (15, "")


def test_without_matplotlib_the_table_is_there_and_pictures_say_what_to_install(place):
    hidden = place.path / "hidden" / "matplotlib"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError")
    without = {"PYTHONPATH": f"{hidden.parent}{os.pathsep}{environment()['PYTHONPATH']}"}
    assert ask(place, **without).code == 0
    done = ask(place, "--charts", "pictures", **without)
    assert (done.code, "agentlip[report]" in done.err) == (18, True)
    assert not (place.path / "pictures").exists()


@given(some.lists(some.tuples(some.floats(0, 100), some.integers(1, 9))))
def test_the_weighted_median_has_half_of_the_weight_on_either_side(pairs):
    found = weighted_median(pairs)
    if not pairs:
        assert found is None
        return
    half = sum(weight for _, weight in pairs) / 2
    assert sum(weight for value, weight in pairs if value < found) <= half
    assert sum(weight for value, weight in pairs if value > found) <= half


def test_the_output_of_the_job_may_be_named_instead_of_its_gold(place):
    found = report(place.datadir.dir, None, None, None, 5)
    assert found.total.messages == 23
