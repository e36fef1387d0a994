"""What a person with the scope can change on the operator's pages, in a real browser."""

import pytest

from tests.support.operated_workspace import fill_queues, fill_sends
from tests.support.servedhub import serve
from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow
SPEC = {"command": ["sh", "-c", "echo first line; sleep 0.3; echo last line; exit 3"]}
SLOW = {"command": ["sh", "-c", "echo begun; sleep 600"]}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("ui")) as hub:
        fill_queues(hub)
        fill_sends(hub)
        for name, spec in (("build", SPEC), ("watch", SLOW)):
            hub.http("PUT", f"/api/v1/jobs/{name}", spec)
        yield hub


def operate(page, view, row=""):
    page.go(f"#/operate?view={view}")
    page.sees("As of", ".operate")
    if row:
        page.click("tbody th a", row)
        page.has(".detail")


def act(page, title, text=""):
    """Press a button of the open row, and confirm the dialog."""
    page.click(".detail .acts button", title)
    page.has("dialog")
    page.sees(text, "dialog")
    page.click("dialog .buttons button", title)
    page.lacks("dialog")


def audited(hub):
    return [act["act"] for act in hub.http.get("/api/v1/audit?limit=100").body["acts"]]


def test_failed_job_shows_why_and_runs_again(hub, page):
    operate(page, "jobs", "build")
    act(page, "Run now", "A run of build begins")
    page.sees("failed", ".runs h3")
    page.sees("last line", ".runs .output")
    page.sees("3", ".runs dl")
    act(page, "Run now")
    until(lambda: page.count(".squares button.bad") == 2, 20, "both runs are shown")
    page.click(".squares button:last-child")
    page.sees("first line", ".runs .output")
    assert "POST /api/v1/jobs/{job}/runs" in audited(hub)


def test_running_job_shows_its_output_and_is_cancelled(page):
    operate(page, "jobs", "watch")
    act(page, "Run now")
    page.sees("begun", ".runs .output")
    act(page, "Stop", "A cancelled run is not repeated")
    page.sees("cancelled", ".runs h3")


def test_job_is_paused_and_resumed(hub, page):
    operate(page, "jobs", "build")
    act(page, "Pause", "No run of build starts")
    page.sees("Resume", ".detail .acts")
    act(page, "Resume")
    page.sees("Pause", ".detail .acts")


def test_dead_letters_are_redriven_and_the_stream_is_paused(hub, page):
    operate(page, "queues", "builds")
    act(page, "Pause", "New envelopes are stored")
    page.sees("paused", "tbody")
    act(page, "Redrive", "2 dead letters match.")
    until(lambda: stats(hub)["dead"] == 0, 20, "they are ready")
    assert stats(hub)["paused"] is True
    act(page, "Resume")


def test_purge_needs_the_typed_name(hub, page):
    operate(page, "queues", "builds")
    page.click(".detail .acts button", "Purge")
    page.has("dialog button[disabled]")
    page.fill("dialog input", "builds")
    page.click("dialog .buttons button", "Purge")
    page.lacks("dialog")
    until(lambda: stats(hub).get("depth", 0) == 0, 20, "nothing is left")


def stats(hub):
    return hub.http.get("/v1/stats?stream=builds").body


def test_failed_send_is_redriven(hub, page):
    operate(page, "sends", "#nobody")
    act(page, "Redrive", "the recipient gets it twice")
    assert "POST /v1/outbox/redrive" in audited(hub)


def test_backup_is_made_by_a_button(hub, page):
    operate(page, "backups")
    page.click(".bar .acts button", "Back up now")
    page.click("dialog .buttons button", "Back up now")
    page.lacks("dialog")
    until(lambda: hub.http.get("/api/v1/backups").body["backups"], 40, "there is one")


def test_somebody_is_invited_and_revoked_in_the_page(hub, page):
    operate(page, "people")
    page.click(".bar button", "Invite")
    page.fill("dialog input", "grace")
    page.click("dialog label", "Reader")
    page.click("dialog .buttons button", "Make a link")
    page.sees("#invite=", "dialog pre")
    link = page.text("dialog pre")
    with ui_page(hub, signed_in=False) as guest:
        guest.tab.open(link)
        guest.sees("grace", ".person")
        page.click("dialog .buttons button", "Done")
        page.sees("grace", "tbody")
        page.click("tbody th a", "grace")
        page.sees("hub:read", "tbody")
        page.click(".detail .acts button", "Revoke")
        page.fill("dialog input", "grace")
        page.click("dialog .buttons button", "Revoke")
        page.lacks("dialog")
        page.misses("grace", "tbody")
        guest.sees("Signed out", ".banner")


def test_route_of_a_send_is_paused_and_resumed(hub, page):
    operate(page, "sends", "#nobody")
    act(page, "Pause", "New sends are stored")
    page.sees("broker:lab (paused)", "tbody")
    page.sees("broker:lab", ".facts")
    assert hub.http.get("/v1/outbox").body["paused"] == [{"route": "broker:lab", "until": None}]
    page.sees("Resume", ".detail .acts")
    act(page, "Resume", "deliveries go on")
    until(lambda: hub.http.get("/v1/outbox").body["paused"] == [], 20, "the route is resumed")
    assert "POST /v1/outbox/pause" in audited(hub)


def test_reader_is_offered_nothing_that_changes_something(hub):
    scopes = ["hub:read", "jobs:read", "courier:read", "outbox:read", "backup:read"]
    known = hub.http.post("/api/v1/tokens", {"name": "rita", "scopes": ["hub:read", "jobs:read"]})
    assert known.status == 201, scopes
    with ui_page(hub, signed_in=False) as page:
        page.open()
        page.sign_in(known.body["token"]["id"])
        operate(page, "jobs", "build")
        page.has(".detail dl")
        assert page.count(".acts button") == 0


def test_one_dead_letter_is_redriven_from_its_row(hub, page):
    fill_queues(hub, "singles")
    operate(page, "queues", "singles")
    page.click(".detail .trouble .acts button", "Redrive")
    page.sees("The dead letter singles-0", "dialog")
    page.click("dialog .buttons button", "Redrive")
    page.lacks("dialog")
    until(lambda: hub.http.get("/v1/stats?stream=singles").body["dead"] == 1, 20, "one is left")


def test_filter_counts_the_dead_letters_before_they_are_redriven(hub, page):
    fill_queues(hub, "filtered")
    operate(page, "queues", "filtered")
    page.click(".detail .acts button", "Redrive")
    page.sees("2 dead letters match", "dialog")
    page.choose("dialog select", "reason")
    page.fill("dialog input", "another")
    page.press("Tab")
    page.sees("0 of 2 dead letters match", "dialog")
    page.fill("dialog input", "rejected")
    page.press("Tab")
    page.sees("2 of 2 dead letters match", "dialog")
    page.click("dialog .buttons button", "Redrive")
    page.lacks("dialog")
    until(lambda: hub.http.get("/v1/stats?stream=filtered").body["dead"] == 0, 20, "none is left")


def test_stream_is_paused_until_a_time(hub, page):
    fill_queues(hub, "resting")
    operate(page, "queues", "resting")
    page.click(".detail .acts button", "Pause")
    page.choose("dialog select", "until")
    page.has("dialog input[type='datetime-local']")
    page.tab.evaluate(TIME)
    page.click("dialog .buttons button", "Pause")
    page.sees("resting is paused until", ".notice")


TIME = """(() => {
  const field = document.querySelector("dialog input[type='datetime-local']");
  field.value = '2027-01-31T12:00';
  field.dispatchEvent(new Event('input', { bubbles: true }));
})()"""


def test_all_failed_sends_are_redriven_with_their_count(hub, page):
    until(lambda: hub.http.get("/v1/outbox").body["depth"]["dead"], 20, "a send is dead")
    operate(page, "sends")
    page.click(".bar .acts button", "Redrive all")
    page.sees("sends are dead letters", "dialog")
    page.click("dialog .buttons button", "Redrive all")
    page.sees("are tried again", ".notice")


def test_dead_letters_of_a_webhook_are_redriven(hub, page):
    webhook = {"url": "https://hooks.example.com/in", "description": "the pager"}
    hub.made(hub.http.post("/api/v1/webhooks", webhook))
    operate(page, "webhooks", "hooks.example.com")
    act(page, "Redrive", "Each dead letter of the webhook")
    page.sees("0 sends are tried again", ".notice")
    act(page, "Disable", "Events wait")
    page.sees("disabled", "tbody")


def test_overview_lists_what_is_wrong_with_the_action_that_helps(hub, page):
    fill_queues(hub, "wrong")
    operate(page, "overview")
    page.sees("2 dead letters", ".view")
    page.sees("wrong", "section[aria-label='Queues']")
    count = "nav.tabs [aria-label='Work'] > span .badge"
    before = int(page.text(count))
    page.click("section[aria-label='Queues'] li:last-child .acts button", "Redrive")
    page.click("dialog .buttons button", "Redrive")
    page.lacks("dialog")
    until(lambda: int(page.text(count) or 0) < before, 20, "the count is smaller")


def test_reader_sees_only_what_the_scopes_allow_in_the_overview(hub):
    body = {"name": "jon", "scopes": ["jobs:read"]}
    jon = hub.made(hub.http.post("/api/v1/tokens", body))["token"]["id"]
    with ui_page(hub, signed_in=False) as page:
        page.sign_in(jon)
        page.tab.resize(400, 760)
        operate(page, "overview")
        page.lacks("section[aria-label='Queues']")
        assert page.count(".view .acts button") == 0
