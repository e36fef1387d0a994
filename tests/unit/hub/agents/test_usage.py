"""The file in which a turn reports its tokens and cost."""

import pytest

from appliance.hub.agents import usage
from appliance.hub.agents.usage import TurnUsage
from appliance.kernel.errors import Invalid


def test_missing_file_reports_nothing(tmp_path):
    assert usage.read(tmp_path / "none") == TurnUsage()


def test_reports_are_added(tmp_path):
    file = str(tmp_path / "usage.json")
    usage.add(file, 100, 0.5)
    usage.add(file, 20, 0.25)
    assert usage.read(tmp_path / "usage.json") == TurnUsage(120, 0.75)


@pytest.mark.parametrize("text", ['{"tokens": -1}', "[]", "{", '{"tokens": "many"}', "1" * 5000])
def test_wrong_file_is_named_and_counts_nothing(tmp_path, text):
    file = tmp_path / "usage.json"
    file.write_text(text)
    read = usage.read(file)
    assert (read.tokens, read.cost) == (0, 0.0)
    assert read.problem


@pytest.mark.parametrize("before", ["{", '{"tokens": 1000000000000}'])
def test_report_that_would_not_count_is_refused(tmp_path, before):
    file = tmp_path / "usage.json"
    file.write_text(before)
    with pytest.raises(Invalid):
        usage.add(str(file), 1, 0.0)
    assert file.read_text() == before


def test_report_outside_a_turn_is_refused():
    with pytest.raises(Invalid):
        usage.add(None, 1, 0.0)
