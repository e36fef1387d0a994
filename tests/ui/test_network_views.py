"""The agent network in the operator's pages: a served relay, an appliance, and another agent."""

import pytest

from tests.cli.test_network_person import Scenario
from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    made = Scenario(tmp_path_factory.mktemp("scenario"))
    made.anna.run("request", "bert", "--greeting", "<b>Hello</b>")
    made.start()
    yield made
    made.hub.stop()
    made.relay.stop()


def view(page, name, row):
    page.go(f"#/operate?view={name}")
    page.sees(row, "tbody")
    page.click("tbody th a", row)
    page.has(".detail dl")


def test_request_is_accepted_and_the_contact_removed_in_the_page(scenario):
    until(lambda: scenario.hub.http.get("/api/v1/network/requests").body["requests"])
    with ui_page(scenario.hub) as page:
        view(page, "network", "anna")
        page.sees("<b>Hello</b>", "tbody")
        page.sees("Safety number", ".detail")
        page.click(".detail .acts button", "Accept")
        page.sees("becomes a contact of bert", "dialog")
        page.click("dialog .buttons button", "Accept")
        page.lacks("dialog")
        until(lambda: scenario.anna.json("contacts"), what="the contact")
        page.sees("contact", "tbody")
        page.click("tbody th a", "anna")
        page.click(".detail .acts button", "Remove")
        page.click("dialog .buttons button", "Remove")
        page.sees("No contacts", ".operate")
        assert page.tab.problems == []


def test_group_is_shown_with_members_and_roles(scenario):
    scenario.anna.run("request", "bert")
    scenario.bert.run("accept", "anna")
    group = scenario.bert.json("group", "create", "builders")["groupId"]
    scenario.bert.run("group", "invite", group, "anna")
    scenario.anna.run("group", "accept", group)
    with ui_page(scenario.hub) as page:
        view(page, "groups", "builders")
        page.sees("anna (member)", ".detail")
        page.sees("bert (owner)", ".detail")
        assert page.tab.problems == []


def test_broadcast_is_shown_with_its_admin(scenario):
    scenario.broadcast("Key of bo was stolen", "security-alert")
    with ui_page(scenario.hub) as page:
        page.go("#/operate?view=broadcasts")
        page.sees("Key of bo was stolen", "tbody")
        page.sees("security-alert", "tbody")
        page.sees("ada", "tbody")
