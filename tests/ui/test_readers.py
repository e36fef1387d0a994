"""What people with few rights, and in channels with long names, see in the web UI."""

import pytest

from tests.support.uipage import token_of_ada, ui_page

pytestmark = pytest.mark.slow

SENDER = "document.querySelector('.send input').value"


def token_of(hub, name, *scopes):
    body = {"name": name, "scopes": [*scopes]}
    return hub.made(hub.http.post("/api/v1/tokens", body))["token"]["id"]


def test_signed_in_reader_learns_which_scope_writing_needs(hub):
    topic = hub.channel_with_topic("read only")
    hub.send(topic[1], "for readers")
    with ui_page(hub, signed_in=False) as page:
        page.sign_in(token_of(hub, "rita", "hub:read"))
        page.topic(*topic)
        page.sees("hub:post", "p.compose")
        page.misses("Sign in")
        page.lacks(".compose textarea")
        page.lacks('.actions button[aria-label^="Edit"]')
        page.lacks(".heading button")
        page.go("#/operate?view=backups")
        page.sees("backup:read", "main")
        page.misses("Sign in")


def test_page_without_the_right_to_read_says_which_scope_it_needs(hub):
    with ui_page(hub, signed_in=False) as page:
        page.sign_in(token_of(hub, "jobs only", "jobs:read"))
        page.sees("hub:read", "main")
        page.misses("Sign in")


def test_sender_is_the_person_until_another_name_is_chosen(hub):
    topic = hub.channel_with_topic("senders")
    with ui_page(hub) as page:
        page.open()
        page.topic(*topic)
        page.has(".send input")
        assert page.tab.evaluate(SENDER) == "ada"
        page.fill(".send input", "the build bot")
        page.fill(".compose textarea", "hello")
        page.press("Enter")
        page.sees("the build bot", ".list")
        page.sign_in(token_of(hub, "grace", "hub:read", "hub:post"))
        page.sees("grace", "header")
        page.topic(*topic)
        page.has(".send input")
        assert page.tab.evaluate(SENDER) == "grace"
        page.sign_in(token_of_ada(hub))
        page.sees("ada", "header")
        page.topic(*topic)
        page.has(".send input")
        assert page.tab.evaluate(SENDER) == "ada"


@pytest.mark.parametrize("width", [1280, 390])
def test_long_channel_name_leaves_room_for_the_title(hub, width):
    channel_id = hub.channel(f"observability-and-incident-response-{width}-" + "x" * 55)
    topic_id = hub.topic(channel_id, "The title is seen")
    with ui_page(hub) as page:
        page.open()
        page.tab.resize(width, 800)
        page.topic(channel_id, topic_id)
        page.sees("The title is seen", "h1")
        shown = page.tab.evaluate(
            "(() => { const range = document.createRange(), h1 = document.querySelector('h1');"
            " range.selectNodeContents(h1.querySelector('.title') || h1.lastChild);"
            " const { right } = range.getBoundingClientRect();"
            " return right <= h1.getBoundingClientRect().right + 1; })()"
        )
        assert shown
