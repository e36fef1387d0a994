"""One-time links that are pasted into a tab which already shows the web UI."""

import pytest

from tests.support.servedhub import serve
from tests.support.uipage import ui_page

pytestmark = pytest.mark.slow

PERSON = "header a[href='#/sign-in']"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("ui")) as hub:
        hub.send(hub.channel_with_topic("general")[1], "for everybody")
        yield hub


def token_of(hub, name, *scopes):
    body = {"name": name, "scopes": [*scopes]}
    return hub.made(hub.http.post("/api/v1/tokens", body))["token"]["id"]


def test_link_in_a_tab_without_a_session_signs_in(hub):
    with ui_page(hub, signed_in=False) as page:
        page.open()
        page.is_live()
        page.sees("Sign in", PERSON)
        page.sign_in(token_of(hub, "grace", "hub:read", "hub:post"))
        page.sees("grace", PERSON)
        page.is_live()
        assert "invite" not in page.tab.evaluate("location.href")
        page.click(".cards a")
        page.sees("for everybody", ".list")
        page.has(".compose textarea")


def test_link_of_another_person_replaces_who_is_signed_in_everywhere(hub):
    with ui_page(hub) as page, page.beside() as other:
        other.sees("ada", PERSON)
        page.sign_in(token_of(hub, "linus", "hub:read", "hub:post"))
        page.sees("linus", PERSON)
        page.sees("Signed in as linus", ".notice")
        other.sees("linus", PERSON)
        other.is_live()


def test_used_link_says_so_and_keeps_who_is_signed_in(hub):
    with ui_page(hub) as page:
        page.is_live()
        page.tab.open(f"{hub.url}/ui/#invite=not-a-real-one")
        page.sees("A link works once", "main")
        page.sees("ada", PERSON)
        page.click("header nav a", "Events")
        page.sees("Events", "h1")
        page.tab.open(f"{hub.url}/ui/#invite=not-a-real-one")
        page.sees("A link works once", "main")
        assert all("401" in each for each in page.tab.problems), page.tab.problems
