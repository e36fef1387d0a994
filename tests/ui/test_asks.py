"""Waiting for you: questions appear, are answered once, and only by those who may."""

import pytest

from tests.support.servedhub import serve
from tests.support.uipage import token_of_ada, ui_page

pytestmark = pytest.mark.slow

PATH = "/api/v1/asks"
SCREEN = "section[aria-label='Waiting for you']"
BADGE = "header nav .badge"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("ui")) as hub:
        hub.channel_with_topic("general")
        yield hub


@pytest.fixture
def page(hub):
    with ui_page(hub) as page:
        yield page


def ask(hub, text, **more):
    body = {"text": text, "sender": "deployer", **more}
    return hub.made(hub.http.post(PATH, body))["ask"]["id"]


def show(hub, ask_id):
    return hub.http.get(f"{PATH}/{ask_id}").body["ask"]


def test_question_arrives_live_and_a_button_answers_it(hub, page):
    page.go("#/asks")
    page.sees("Nothing waits for you", SCREEN)
    page.is_live()
    ask_id = ask(hub, "Deploy build 7?", choices=["yes", "no"], default="no", deadline_seconds=3600,
                 blocks=["deploy-7"])  # fmt: skip
    page.sees("Deploy build 7?", SCREEN)
    page.sees("deploy-7", SCREEN)
    page.sees("00:59:", ".ask time")
    page.sees("1", BADGE)
    page.click(".ask button", "yes")
    page.lacks(".ask")
    page.lacks(BADGE)
    page.sees("answered by ada", ".asked")
    answered = show(hub, ask_id)
    assert (answered["answer"], answered["answered_principal"]) == ("yes", "ada")


def test_token_without_the_scope_sees_why_it_cannot_answer(hub):
    made = hub.http.post("/api/v1/tokens", {"name": "reader", "scopes": ["hub:read"]})
    token_of_ada(hub)
    ask(hub, "Really?", choices=["yes"])
    with ui_page(hub, signed_in=False) as page:
        page.sign_in(hub.made(made)["token"]["id"])
        page.go("#/asks")
        page.sees("ask:answer", ".ask")
        page.lacks(".ask button")
