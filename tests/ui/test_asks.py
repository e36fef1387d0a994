"""Waiting for you: questions appear, are answered once, and only by those who may."""

import pytest

from tests.support.servedhub import serve
from tests.support.uipage import token_of_ada, ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow

PATH = "/api/v1/asks"
SCREEN = "section[aria-label='Waiting for you']"
BADGE = "header nav .badge"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("ui")) as hub:
        hub.channel_with_topic("general")
        yield hub


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


def test_question_is_a_card_in_its_topic_and_settles_in_place(hub, page):
    channel_id, topic_id = hub.channel_with_topic("releases")
    ask_id = ask(hub, "Release **build 8**?", choices=["yes", "no"], topic_id=topic_id)
    page.topic(channel_id, topic_id)
    page.sees("Release build 8?", ".message .ask")
    page.misses("agentlip ask answer", ".list")
    page.click(".message .ask button", "no")
    page.has(".message .ask button:focus")  # Undo
    page.press("Enter")
    page.lacks(".settled")
    page.click(".message .ask button", "yes")
    page.sees("yes, by ada, ", ".message .settled")
    page.lacks(".message .ask button")
    page.sees(f"(answered; {ask_id})", ".list")
    assert show(hub, ask_id)["answer"] == "yes"


def test_undone_answer_is_never_sent(hub, page):
    ask_id = ask(hub, "Keep the branch?", choices=["drop it", "keep it"])
    page.go("#/asks")
    page.click(".ask button", "drop it")
    page.click(".ask button", "Undo")
    page.click(".ask button", "keep it")
    until(lambda: show(hub, ask_id)["state"] == "answered", 20, "the answer is sent")
    assert show(hub, ask_id)["answer"] == "keep it"


def test_pressed_answer_is_sent_when_the_page_is_left(hub, page):
    ask_id = ask(hub, "Leave now?", choices=["leave it"])
    page.go("#/asks")
    page.click(".ask button", "leave it")
    page.sees("Undo", ".ask")
    page.tab.open("about:blank")
    until(lambda: show(hub, ask_id)["state"] == "answered", 20, "the answer is sent")


def test_question_answered_elsewhere_settles_the_card(hub, page):
    channel_id, topic_id = hub.channel_with_topic("rollbacks")
    ask_id = ask(hub, "Roll back?", topic_id=topic_id)
    page.topic(channel_id, topic_id)
    page.has(".message .ask textarea")
    page.is_live()
    answer = {"answer": "not yet", "sender": "grace"}
    assert hub.http.post(f"{PATH}/{ask_id}/answer", answer).status == 200
    page.sees("not yet, by grace", ".message .settled")
