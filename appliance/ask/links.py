"""Links that can answer an ask, for one recipient each.

    ask_01K….0.BASE64     the ask, the number of the recipient, and an HMAC

The HMAC covers the ask, the recipient's address and the deadline, so a link can't be changed to
another one. A link needs no token: it is as secret as the mail that contains it.
"""

import base64
import hashlib
import hmac

from appliance.ask import wire
from appliance.ask.queries import StoredAsk


def link_of(key: bytes, ask: StoredAsk, number: int) -> str:
    signed = (ask.row.id, ask.mail_to[number], str(ask.row.due_steady_ms))
    digest = hmac.digest(key, "\0".join(signed).encode(), hashlib.sha256)
    return f"{ask.row.id}.{number}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def ask_id_of(link: str) -> str:
    return link.partition(".")[0]


def recipient_of(key: bytes, ask: StoredAsk, link: str) -> str:
    """The address for which this link was made. Raises NoSuchLink."""
    for number, address in enumerate(ask.mail_to):
        if hmac.compare_digest(link_of(key, ask, number).encode(), link.encode()):
            return address
    raise wire.NoSuchLink
