"""Backups on the operator's page: verification, a restore's losses, and who may see them."""

import pytest

from tests.support.operated_workspace import back_up
from tests.support.servedhub import serve
from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow
SECONDS_MAX = 150  # a verification yields the CPU to other work of the machine


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("ui")) as hub:
        hub.channel("kept")
        back_up(hub)
        yield hub


def open_backup(page, hub):
    name = hub.http.get("/api/v1/backups").body["backups"][0]["name"]
    page.go("#/operate?view=backups")
    page.sees(name, "tbody")
    page.click("tbody th a", name)
    page.has(".detail")
    return name


def checked_at(hub):
    return hub.http.get("/api/v1/backups").body["backups"][0]["verification"]["checked_at"]


def test_backup_is_verified_by_a_button(hub):
    before = checked_at(hub)
    with ui_page(hub) as page:
        open_backup(page, hub)
        page.click(".detail .acts button", "Verify now")
        page.click("dialog .buttons button", "Verify now")
        page.lacks("dialog")
        until(lambda: checked_at(hub) != before, SECONDS_MAX, "it was verified again")
        page.sees("good", "tbody")
    acts = hub.http.get("/api/v1/audit?limit=100").body["acts"]
    assert "POST /api/v1/backups/{name}/verify" in [act["act"] for act in acts]


def test_plan_names_what_a_restore_would_lose(hub):
    hub.channel("made-since")
    with ui_page(hub) as page:
        name = open_backup(page, hub)
        page.click(".detail button", "What would a restore lose?")
        page.sees("made-since", ".plan")
        page.sees("Lost: ", ".plan")
        page.sees(f"agentlip backup restore {name} --yes", ".detail .command")
        assert page.tab.problems == []


def test_reader_of_backups_sees_no_plan_and_the_scope(hub):
    body = {"name": "rita", "scopes": ["backup:read"]}
    rita = hub.made(hub.http.post("/api/v1/tokens", body))["token"]["id"]
    with ui_page(hub, signed_in=False) as page:
        page.sign_in(rita)
        page.tab.resize(400, 760)
        open_backup(page, hub)
        page.sees("Only the scope admin", ".detail")
        assert page.count(".acts button") == 0
