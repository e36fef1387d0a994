"""A question by mail: opening the link answers nothing, a button answers once."""

import base64
import hmac
import re
from urllib.parse import urlencode

import pytest

from tests.support.chromium import browser_page
from tests.support.commands import agentlip
from tests.support.hostile_texts import MARKUP
from tests.support.mailserver import mail_server
from tests.support.servedhub import ServedHub, serve
from tests.support.until import until

pytestmark = pytest.mark.slow
PATH = "/api/v1/asks"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SETTINGS = """
[ask]
mail_to = ["ada@example.org", "bob@example.org"]
url = "http://hub.example.org"
[mail]
host = "127.0.0.1"
port = {port}
security = "none"
sender = "agent@example.org"
"""


@pytest.fixture(scope="module")
def mails(tmp_path_factory):
    with mail_server(tmp_path_factory.mktemp("mails")) as server:
        yield server


@pytest.fixture(scope="module")
def hub(tmp_path_factory, mails):
    folder = tmp_path_factory.mktemp("hub")
    with serve(folder, settings=SETTINGS.format(port=mails.port)) as hub:
        yield hub


def ask(hub, **more):
    question = {"text": "Deploy?", "sender": "ci", "choices": ["yes", "no"]}
    return ServedHub.made(hub.http.post(PATH, question | more))["ask"]["id"]


def links(mails, ask_id):
    """Path of the link in the mail to each recipient."""
    pattern = re.compile(rf"http://hub\.example\.org(/ask/{ask_id}\.\S+)")
    pairs = [(mail.recipients[0], pattern.search(mail.text)) for mail in mails.mails]
    return {recipient: match[1] for recipient, match in pairs if match}


def both_links(mails, ask_id):
    until(lambda: len(links(mails, ask_id)) == 2, 20, "two mails")
    return links(mails, ask_id)


def press(hub, path, answer, **headers):
    body = urlencode({"answer": answer}).encode()
    return hub.connect(None).post(path, raw=body, headers={**FORM, **headers})


def show(hub, ask_id):
    return hub.http.get(f"{PATH}/{ask_id}").body["ask"]


def test_link_answers_when_a_button_is_pressed_and_only_once(hub, mails):
    ask_id = ask(hub)
    to = both_links(mails, ask_id)
    stranger = hub.connect(None)
    for _ in range(3):
        opened = stranger.get(to["ada@example.org"])
        assert opened.status == 200
        assert b'<button name="answer" value="yes">' in opened.raw
    assert "form-action 'self'" in opened.headers["content-security-policy"]
    assert show(hub, ask_id)["state"] == "waiting"
    wrong = press(hub, to["ada@example.org"], "maybe")
    assert b"not one of the choices" in wrong.raw
    foreign = press(hub, to["ada@example.org"], "yes", Origin="https://evil.example")
    assert foreign.status == 403
    assert b"answered: yes (ada@example.org" in press(hub, to["ada@example.org"], "yes").raw
    late = press(hub, to["bob@example.org"], "no")
    assert b"already answered" in late.raw
    assert b"answered: yes (ada@example.org" in stranger.get(to["bob@example.org"]).raw
    answered = show(hub, ask_id)
    assert (answered["answer"], answered["answered_via"]) == ("yes", "mail")
    assert answered["answered_by"] == "ada@example.org"


def test_forged_links_are_refused(hub, mails):
    ask_id, other = ask(hub), ask(hub)
    to = both_links(mails, ask_id)
    good = to["ada@example.org"]
    for forged in (
        good.replace(ask_id, other), good.replace(".0.", ".1."), good[:-1], f"/ask/{ask_id}",
        f"/ask/{ask_id}.0.", "/ask/ask_x.0.AAAA", good[:-2] + ("AA" if good[-2:] != "AA" else "BB"),
    ):  # fmt: skip
        assert press(hub, forged, "yes").status in (400, 404), forged
        assert hub.connect(None).get(forged).status in (400, 404), forged
    assert show(hub, ask_id)["state"] == show(hub, other)["state"] == "waiting"


def test_recipients_are_those_of_the_settings(hub, mails):
    only = ask(hub, mail_to=["bob@example.org"])
    until(lambda: links(mails, only), 20, "a mail")
    assert set(links(mails, only)) == {"bob@example.org"}
    silent = ask(hub, mail_to=[])
    both_links(mails, ask(hub))
    assert not links(mails, silent)
    body = {"text": "x", "sender": "ci", "mail_to": ["eve@example.org"]}
    assert hub.http.post(PATH, body).body["code"] == "ASK_MAIL_NOT_PERMITTED"


def made_link(secret, ask_id, webhook_id):
    """As docs/how-to/ask-a-person.md says, without the code of the appliance."""
    name = f"{ask_id}.{webhook_id}"
    key = base64.b64decode(secret)
    digest = hmac.digest(key, name.encode(), "sha256")
    return f"/ask/{name}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def webhook(hub, **more):
    body = {"url": "https://hooks.example.com/in", **more}
    made = ServedHub.made(hub.http.post("/api/v1/webhooks", body))
    return made["webhook"]["id"], answer_secret(hub, made["webhook"]["id"])


def answer_secret(hub, webhook_id):
    return hub.http.post(f"/api/v1/webhooks/{webhook_id}/answer-secret").body["secret"]


def test_receiver_of_a_webhook_answers_once_with_its_answer_secret(hub):
    ask_id = ask(hub, mail_to=[])
    webhook_id, secret = webhook(hub, events={"channels": ["asks"], "names": ["message.created"]})
    printed = agentlip("ask", "answer-secret", webhook_id, cwd=hub.workspace)
    assert (printed.code, printed.out.strip()) == (0, secret)
    link = made_link(secret, ask_id, webhook_id)
    assert b"Deploy?" in hub.connect(None).get(link).raw
    assert show(hub, ask_id)["state"] == "waiting"
    assert press(hub, link, "maybe").status == 400
    assert press(hub, link, "yes").status == 200
    answered = show(hub, ask_id)
    assert (answered["answer"], answered["answered_via"]) == ("yes", "webhook")
    assert answered["answered_by"] == answered["answered_principal"] == webhook_id
    assert press(hub, link, "no").status == 409
    assert show(hub, ask_id)["answer"] == "yes"


def test_links_of_other_webhooks_are_refused(hub):
    general = hub.channel("elsewhere")
    webhook_id, secret = webhook(hub)
    other_id, other_secret = webhook(hub, events={"channels": [general]})
    wrong_names, its_secret = webhook(hub, events={"names": ["channel.created"]})
    ask_id, only_tokens = ask(hub, mail_to=[]), ask(hub, mail_to=[], may_answer=["grace"])
    forged = [
        made_link(other_secret, ask_id, webhook_id), made_link(other_secret, ask_id, other_id),
        made_link(its_secret, ask_id, wrong_names), made_link(secret, "ask_none", webhook_id),
        made_link(secret, ask_id, "hook_none"), made_link(secret, ask_id, webhook_id) + "A",
    ]  # fmt: skip
    for link in forged:
        assert press(hub, link, "yes").status == 404, link
    assert press(hub, made_link(secret, only_tokens, webhook_id), "yes").status == 403
    hub.http.patch(f"/api/v1/webhooks/{webhook_id}", {"enabled": False})
    assert press(hub, made_link(secret, ask_id, webhook_id), "yes").status == 404
    named = ask(hub, mail_to=[], may_answer=[webhook_id])
    hub.http.patch(f"/api/v1/webhooks/{webhook_id}", {"enabled": True, "new_secret": True})
    changed = answer_secret(hub, webhook_id)
    assert changed != secret
    for each in (secret, changed):  # both, until the rotation ends
        assert hub.connect(None).get(made_link(each, named, webhook_id)).status == 200
    assert press(hub, made_link(secret, named, webhook_id), "yes").status == 200
    assert show(hub, ask_id)["state"] == "waiting"


def test_token_that_manages_webhooks_can_not_answer(hub):
    body = {"name": "ops", "scopes": ["hub:admin", "hub:read"]}
    ops = hub.connect(ServedHub.made(hub.http.post("/api/v1/tokens", body))["secret"])
    key = base64.b64encode(b"k" * 32).decode()
    hook = {"url": "https://hooks.example.com/in", "secret": f"whsec_{key}"}
    webhook_id = ServedHub.made(ops.post("/api/v1/webhooks", hook))["webhook"]["id"]
    for names in ([], [webhook_id]):
        ask_id = ask(hub, mail_to=[], may_answer=names)
        assert press(hub, made_link(key, ask_id, webhook_id), "yes").status == 404
        assert ops.post(f"{PATH}/{ask_id}/answer", {"answer": "yes"}).status == 403
        assert show(hub, ask_id)["state"] == "waiting"
    assert ops.post(f"/api/v1/webhooks/{webhook_id}/answer-secret").status == 403


def test_mail_answers_only_for_those_that_may(hub, mails):
    named = ["ada@example.org", "grace"]
    ask_id = ask(hub, may_answer=named)
    to = until(lambda: links(mails, ask_id), 20, "a mail")
    assert set(to) == {"ada@example.org"}, "others get no mail unless they are named"
    shown_only = ask(hub, may_answer=named, mail_to=["bob@example.org"])
    to_bob = until(lambda: links(mails, shown_only), 20, "a mail")["bob@example.org"]
    shown = hub.connect(None).get(to_bob)
    assert (shown.status, b"Deploy?" in shown.raw, b"<button" in shown.raw) == (200, True, False)
    assert press(hub, to_bob, "yes").status == 403
    assert show(hub, shown_only)["state"] == "waiting"
    assert press(hub, to["ada@example.org"], "yes").status == 200
    assert show(hub, ask_id)["answered_by"] == "ada@example.org"


FORMS = [b"answer=yes&answer=no", b"answer=yes&x=1", b"x=yes", b"", b"a=1&" * 5000, b"\xff"]


@pytest.mark.parametrize("form", FORMS)
def test_form_with_other_fields_is_refused(hub, form):
    ask_id = ask(hub, mail_to=[])
    webhook_id, secret = webhook(hub)
    link = made_link(secret, ask_id, webhook_id)
    assert hub.connect(None).post(link, raw=form, headers=FORM).status == 400
    assert show(hub, ask_id)["state"] == "waiting"


def test_browser_answers_by_a_button_without_scripts(hub, mails):
    ask_id = ask(hub, text="".join(MARKUP), sender="<b>", choices=["<i>yes</i>", "no"])
    path = both_links(mails, ask_id)["bob@example.org"]
    with browser_page() as tab:
        tab.open(hub.url + path)
        assert tab.evaluate("document.querySelectorAll('script, img, iframe, i, b').length") == 0
        tab.evaluate("document.querySelector('button').click()")
        until(lambda: show(hub, ask_id)["answer"], 20, "the answer")
    assert show(hub, ask_id)["answer"] == "<i>yes</i>"
