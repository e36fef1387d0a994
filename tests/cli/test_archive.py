"""`agentlip archive` as a process: output, and exit codes for damage."""

import pytest

from appliance.export.archive import Archive
from tests.spark.log import Log
from tests.support import archives
from tests.support.commands import agentlip, succeed


@pytest.fixture
def out(tmp_path):
    log = Log()
    topic = log.topic(log.channel("builds"))
    for number in range(5):
        log.say(topic, "ann", f"build {number} failed")
    return archives.archive(log, tmp_path / "in", tmp_path / "archive")


def test_search_prints_messages_and_says_if_there_are_more(out, tmp_path):
    done = succeed("archive", "search", str(out), "--text", "FAILED", cwd=tmp_path)
    assert [f"build {number} failed" in done.out for number in range(5)] == [True] * 5
    few = agentlip("archive", "search", str(out), "--limit", "2", cwd=tmp_path)
    assert "build 2" not in few.out
    assert "--limit" in few.err
    none = agentlip("archive", "search", str(out), "--sender", "ben", cwd=tmp_path)
    assert (none.code, none.out) == (0, "")
    result = agentlip("archive", "search", str(out), "--channel", "builds", "--json", cwd=tmp_path)
    assert [hit["sender"] for hit in result.json["hits"]] == ["ann"] * 5
    assert result.json["more"] is False


def test_verify_names_the_damage_and_ends_with_its_code(out, tmp_path):
    done = agentlip("archive", "verify", str(out), cwd=tmp_path)
    assert (done.code, done.out[:18]) == (0, "1 files are whole:")
    (out / Archive(out).log("events").files[0].file).unlink()
    done = agentlip("archive", "verify", str(out), cwd=tmp_path)
    assert done.code == 10
    assert "is missing" in done.err
    assert agentlip("archive", "verify", str(tmp_path), cwd=tmp_path).code == 10
