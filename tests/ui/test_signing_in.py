"""One-time links that are pasted into a tab which already shows the web UI."""

import pytest

from tests.support.provider import provider
from tests.support.s3server import free_ports
from tests.support.servedhub import serve
from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow

PERSON = ".person"


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
        page.click(".channel a")
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


def test_person_signs_in_with_the_provider_and_comes_back(tmp_path):
    own, theirs = free_ports(2)
    (tmp_path / "secret").write_text("secret")
    with provider(theirs) as op:
        op.add("1", email="ada@example.com")
        op.add("2", email="eve@example.net")
        settings = op.settings(f"http://127.0.0.1:{own}", tmp_path / "secret")
        with serve(tmp_path / "hub", "--port", str(own), settings=settings) as hub:
            assert hub.port == own
            with ui_page(hub, signed_in=False) as page:
                page.open()
                page.is_live()
                leave(page, theirs, "2")
                page.sees("Your account may not sign in here", "main")
                leave(page, theirs, "1")
                page.sees("ada@example.com", PERSON)
                page.is_live()
                assert page.tab.evaluate("location.search") == ""


def leave(page, port, sub):
    """Press the provider's button, and answer the provider's form."""
    page.go("#/sign-in")
    page.click("main button", f"Sign in with 127.0.0.1:{port}")
    page.has("input[name='sub']")
    page.tab.evaluate(f"void (document.querySelector('input[name=sub]').value = '{sub}')")
    page.tab.evaluate("void document.querySelector('button').click()")
    until(lambda: "/ui/" in page.tab.evaluate("location.href"), 20, "the browser is back")


def test_answer_that_this_tab_did_not_begin_signs_nobody_in(hub):
    with ui_page(hub, signed_in=False) as page:
        page.tab.open(f"{hub.url}/ui/?state=theirs&code=stolen&session_state=x")
        page.sees("This sign-in began in another tab", "main")
        assert page.tab.evaluate("location.search") == ""
        page.sees("Sign in", PERSON)


def test_refusal_by_the_provider_is_shown_as_text(hub):
    with ui_page(hub, signed_in=False) as page:
        page.tab.open(f"{hub.url}/ui/?state=x&error=denied&error_description=%3Cb%3Eno%3C/b%3E")
        page.sees("The issuer did not sign you in: <b>no</b>", "main")
