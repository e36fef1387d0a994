"""A restore's plan and a backup's verification over HTTP: scopes, errors, and one at a time."""

import threading

import pytest

from tests.support.operated_workspace import back_up
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow
ABSENT = "20200101T000000Z-000000"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub")) as hub:
        hub.channel("kept")
        back_up(hub)
        hub.channel("made-since")
        yield hub


def newest(hub):
    return hub.http.get("/api/v1/backups").body["backups"][0]["name"]


def test_plan_lists_rows_made_since_the_backup(hub):
    plan = hub.http.get(f"/api/v1/backups/{newest(hub)}/plan").body
    lost = {(row["store"], row["noun"]): row["first"] for row in plan["notices"]}
    assert "made-since" in str(lost)
    assert plan["uncompared"] == []
    assert plan["bytes_needed"] > 0


def test_plan_needs_the_scope_admin(hub):
    body = {"name": "ben", "scopes": ["backup:create", "backup:read"]}
    secret = hub.made(hub.http.post("/api/v1/tokens", body))["secret"]
    refused = hub.connect(secret).get(f"/api/v1/backups/{newest(hub)}/plan")
    assert (refused.status, refused.body["hint"][-14:]) == (403, " --scope admin")


@pytest.mark.parametrize(("method", "verb"), [("GET", "plan"), ("POST", "verify")])
def test_absent_backup_is_named_as_missing(hub, method, verb):
    refused = hub.http(method, f"/api/v1/backups/{ABSENT}/{verb}")
    assert (refused.status, refused.body["code"]) == (404, "BACKUP_NOT_FOUND")


def test_second_plan_is_refused_while_one_runs(hub):
    path, statuses = f"/api/v1/backups/{newest(hub)}/plan", []

    def plan():
        client = hub.connect()
        statuses.append(client.get(path).status)

    threads = [threading.Thread(target=plan) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 409, 409]


def test_second_verification_is_refused_while_one_runs(hub):
    path = f"/api/v1/backups/{newest(hub)}/verify"
    assert hub.http.post(path).status == 202
    assert hub.http.post(path).body["code"] == "BACKUP_RUNNING"
    until(lambda: hub.http.post(path).status == 202, 150, "the first one ended")
