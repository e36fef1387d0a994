"""Reports over HTTP: the same numbers as on the terminal, and their refusals."""

import pytest

from tests.support.commands import agentlip
from tests.support.gold_tables import did, write
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow

PATH = "/api/v1/reports/activity"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(
        tmp_path_factory.mktemp("reports"), settings="[export]\ngold_dir = 'out/gold'\n"
    ) as hub:
        answer = hub.http.get(PATH)
        assert (answer.status, answer.body["code"]) == (404, "EMPTY_RANGE")
        assert "contains no activity tables" in answer.body["error"]
        assert "agentlip jobs run activity" in answer.body["hint"]
        days = {
            "2026-11-19": [did("ann", 5), did("ben", 3)],
            "2026-11-20": [did("cid", 2, channel="other", channel_id="ch_2")],
        }
        hub.version = write(hub.workspace / "out" / "gold", days)
        yield hub


def test_report_equals_the_output_of_the_command_line(hub):
    answer = hub.http.get(PATH)
    assert answer.status == 200
    assert answer.body == agentlip("report", "activity", "--json", cwd=hub.workspace).json
    part = hub.http.get(f"{PATH}?from=2026-11-20&to=2026-11-20&channel=other&top=1").body
    assert part["total"]["messages"] == 2
    assert [item["name"] for item in part["senders"]] == ["cid"]


def test_empty_range_is_404_and_invalid_query_is_400(hub):
    answer = hub.http.get(f"{PATH}?from=2027-01-01")
    assert (answer.status, answer.body["code"]) == (404, "EMPTY_RANGE")
    assert hub.http.get(f"{PATH}?from=2026-02-30").status == 400
    # A value that looks like a flag is only the name of a channel.
    assert hub.http.get(f"{PATH}?channel=--html%3Dx").status == 404
    assert not (hub.workspace / "x").exists()
