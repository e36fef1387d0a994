"""Messages to the operator as chat and push services accept them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.hub.webhooks.settings import WebhookSettings
from appliance.integrations.notify_outbox import OutboxNotices
from appliance.kernel.errors import Unavailable
from appliance.operations.settings import NotifySettings
from appliance.operations.wire import Notice
from appliance.outbox.webhook import WebhookTarget
from appliance.outbox.webhook_formats import FORMATS, JSON, cut, split_destination
from appliance.web.webhook_caller import WebhookCaller
from tests.support.chat_services import SERVICES, ChatService
from tests.support.clock import FakeClock
from tests.support.http_server import http_server
from tests.unit.outbox.test_webhook import FakeDirectory

SUBJECT = "agentlip ws: new: error: größe"
LINES = "\n".join(f'new: error: "{number}" \\ ' + "größe 東京 🦙 " * 12 for number in range(30))
TEXTS = {"short": "the disk is full", "long": LINES, "markup": '<b> & *x* [y](z) `"\\\n```'}


@pytest.fixture(params=SERVICES)
def name(request):
    return request.param


@pytest.fixture
def service(name):
    return ChatService(name)


@pytest.fixture
def served(service):
    with http_server(service.reply) as server:
        yield server


@pytest.fixture
def send(name, service, served):
    def send(text, to="", subject=SUBJECT):
        to = to or f"{name}+http://127.0.0.1:{served.port}{service.path}"
        caller = WebhookCaller(WebhookSettings())
        target = WebhookTarget(FakeDirectory(""), caller, FakeClock())
        notice = Notice("n1", "ws", "2026-01-01T00:00:00.000Z", subject, text)
        OutboxNotices(None, target, FakeClock()).send(to, notice, direct=True)

    return send


@pytest.mark.parametrize("kind", TEXTS)
def test_service_accepts_and_shows_a_message(service, send, kind):
    send(TEXTS[kind])
    assert service.statuses == [200]
    (shown,) = service.shown
    assert SUBJECT in shown
    assert TEXTS[kind][:300].strip() in shown
    assert len(shown) > min(500, len(TEXTS[kind])), "most of the message is kept"


def test_refusal_has_what_the_service_replied(name, service, served, send):
    """With a JSON object of `subject` and `text`, which few services accept."""
    if name in ("slack", "ntfy"):
        send("x", f"json+http://127.0.0.1:{served.port}{service.path}")
        assert service.statuses == [200]
        return
    with pytest.raises(Unavailable, match=r"the receiver responded with 400: .*[a-z]"):
        send("x", f"json+http://127.0.0.1:{served.port}{service.path}")
    assert service.shown == []


KNOWN = {
    "https://discord.com/api/webhooks/1/abc": "discord",
    "https://canary.discord.com/api/webhooks/1/abc": "discord",
    "https://discordapp.com/api/webhooks/1/abc": "discord",
    "https://hooks.slack.com/services/T/B/x": "slack",
    "https://chat.googleapis.com/v1/spaces/A/messages?key=k&token=t": "googlechat",
    "https://corp.webhook.office.com/webhookb2/x": "teams",
    "https://prod-1.westeurope.logic.azure.com:443/workflows/x": "teams",
    "https://default1.2.environment.api.powerplatform.com:443/powerautomate/x": "teams",
    "https://push.example.com/message?token=A1": "gotify",
    "https://push.example.com/gotify/message?token=A1": "gotify",
    "https://ntfy.sh/alerts": "ntfy",
    "https://api.telegram.org/bot1:A/sendMessage?chat_id=1": "telegram",
    "https://api.pushover.net/1/messages.json?token=T&user=U": "pushover",
    "https://chat.example.com/hooks/abc": JSON,
    "https://example.com/?to=https://ntfy.sh/x": JSON,
    "https://ntfy.sh.example.com/x": JSON,
    "https://example.com/a+https://b": JSON,
    "mailto:a+http@example.com": JSON,
}


@pytest.mark.parametrize(("to", "expected"), KNOWN.items())
def test_format_follows_from_the_address(to, expected):
    assert split_destination(to) == (expected, to)


@pytest.mark.parametrize("name", [*FORMATS, JSON])
def test_format_can_be_named(name):
    url = "https://example.com/a?b=c+http://d"
    assert split_destination(f"{name}+{url}") == (name, url)
    assert msgspec.convert({"to": [f"{name}+{url}"]}, NotifySettings)


def test_unknown_format_is_refused():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"to": ["signal+https://example.com"]}, NotifySettings)


@given(st.text(max_size=60), st.integers(min_value=3, max_value=100))
def test_cut_text_fits_and_begins_like_the_text(text, bytes_max):
    short = cut(text, bytes_max)
    assert len(short.encode()) <= bytes_max
    assert text.startswith(short.removesuffix("…"))
