"""Makes links that can answer an ask, for one recipient each.

    ask_01K….0.BASE64        the ask, the mail recipient's number, and an HMAC
    ask_01K….ID.BASE64       the ask, a webhook, and an HMAC with the webhook's key

A mail's HMAC covers the ask, the recipient's address and the deadline, so a link can't be changed
to another one. A link needs no token, and is as secret as the mail. A webhook's receiver makes the
link, with a key from an administrator. Callers that choose a webhook's secret can't compute this
key.
"""

import base64
import hashlib
import hmac

from appliance.hub.ask import wire
from appliance.hub.ask.queries import StoredAsk
from appliance.hub.rows import EventWebhookRow
from appliance.hub.webhooks import views
from appliance.kernel.registered_webhook import secrets_of

EVENT = "message.created"  # a question's form for a webhook


def link_of(key: bytes, ask: StoredAsk, number: int) -> str:
    signed = (ask.row.id, ask.mail_to[number], str(ask.row.due_steady_ms))
    return _sign(key, f"{ask.row.id}.{number}", "\0".join(signed))


def webhook_key(key: bytes, webhook_id: str, secret: str) -> bytes:
    """Return the key for a webhook's links. A new webhook secret makes another key."""
    return hmac.digest(key, f"webhook\0{webhook_id}\0{secret}".encode(), hashlib.sha256)


def webhook_link_of(key: bytes, ask_id: str, webhook_id: str) -> str:
    name = f"{ask_id}.{webhook_id}"
    return _sign(key, name, name)


def parts_of(link: str) -> tuple[str, str]:
    """Return the ask, and the recipient's number or the webhook's id."""
    ask_id, _, rest = link.partition(".")
    return ask_id, rest.partition(".")[0]


def recipient_of(key: bytes, ask: StoredAsk, link: str) -> str:
    """Return the address for which this link was made. Raises NoSuchLink."""
    for number, address in enumerate(ask.mail_to):
        if hmac.compare_digest(link_of(key, ask, number).encode(), link.encode()):
            return address
    raise wire.NoSuchLink


def check_receiver(
    key: bytes, webhook: EventWebhookRow, ask: StoredAsk, link: str, now_ms: int
) -> None:
    """Raise NoSuchLink unless this link was made with the webhook's key, and the webhook
    receives the question."""
    wanted = views.selection_of(webhook)
    in_scope = ask.row.channel_id in wanted.channels or ask.topic_id in wanted.topics
    in_scope = in_scope or not (wanted.channels or wanted.topics)
    receives = webhook.enabled and in_scope and EVENT in (wanted.names or (EVENT,))
    for secret in secrets_of(webhook, now_ms):
        made = webhook_link_of(webhook_key(key, webhook.id, secret), ask.row.id, webhook.id)
        if receives and hmac.compare_digest(made.encode(), link.encode()):
            return
    raise wire.NoSuchLink


def _sign(key: bytes, name: str, signed: str) -> str:
    digest = hmac.digest(key, signed.encode(), hashlib.sha256)
    return f"{name}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
