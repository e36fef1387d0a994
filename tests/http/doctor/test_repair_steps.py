"""`POST /api/v1/doctor/repair`: what it does, what it refuses, and that serving goes on."""

import pytest

from tests.support.database_files import change
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow

PATH = "/api/v1/doctor/repair"
INDEXES = {"what": "indexes", "store": "hub"}
STOP = "agentlipd down; agentlip doctor repair --yes; agentlipd up"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    settings = "[roles]\ninbox = false\n"
    with serve(tmp_path_factory.mktemp("hub"), settings=settings) as hub:
        _, hub.topic_id = hub.channel_with_topic("general")
        hub.send_many(hub.topic_id, [f"message {number}" for number in range(300)])
        yield hub


def schema_of(hub):
    return hub.rows("SELECT type, name, sql FROM sqlite_schema ORDER BY name")


def test_rebuild_says_what_it_did_and_is_logged(hub):
    answer = hub.http.post(PATH, INDEXES)
    assert answer.status == 200
    done, seconds = answer.body["done"], answer.body["seconds"]
    assert done.startswith("no index was missing; built ")
    assert answer.body == {**INDEXES, "done": done, "seconds": seconds}
    until(lambda: '"what":"indexes","store":"hub","by":"server"' in hub.log_text)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"what": "triggers", "store": "hub"}, 400, "INVALID_INPUT"),
        ({"what": "indexes", "store": "../hub"}, 400, "INVALID_INPUT"),
        ({"what": "indexes", "store": "other"}, 400, "INVALID_ARGUMENTS"),
        ({"what": "fts", "store": "auth"}, 400, "INVALID_ARGUMENTS"),
        ({"what": "indexes", "store": "inbox"}, 409, "STEP_NEEDS_STOP"),
    ],
    ids=str,
)
def test_other_requests_are_refused_before_anything_is_changed(hub, body, status, code):
    before = schema_of(hub)
    answer = hub.http.post(PATH, body)
    assert (answer.status, answer.body["code"]) == (status, code)
    if code == "STEP_NEEDS_STOP":
        assert answer.body["hint"] == STOP
    assert schema_of(hub) == before


def test_damaged_store_is_not_changed_and_stays_in_service(tmp_path):
    """Rows of a table that contradict its constraints are damage that no index explains."""
    with serve(tmp_path) as hub:
        _, topic = hub.channel_with_topic("general")
        sent = hub.send(topic)["message"]["id"]
        change(
            hub.datadir.database("hub"),
            "PRAGMA ignore_check_constraints = ON",
            f"UPDATE messages SET version = 0 WHERE id = '{sent}'",
        )
        for _ in range(2):  # the first one does not count as running afterwards
            answer = hub.http.post(PATH, INDEXES)
            assert (answer.status, answer.body["code"]) == (409, "STEP_ON_DAMAGE")
            assert "messages" in answer.body["error"]
        hub.send(topic)
        assert not hub.datadir.suspect_file("hub").exists()


def test_store_that_the_appliance_does_not_have_open_is_repaired(hub):
    """The courier opens its store only for durable streams."""
    for _ in range(2):
        answer = hub.http.post(PATH, {"what": "indexes", "store": "courier"})
        assert answer.status == 200, answer
    assert hub.http.get("/-/ready").status == 200
