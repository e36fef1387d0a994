"""Builds a send's mail. Pure.

Bytes and Message-ID are the same at every attempt, so that servers and mail programs recognise a
duplicate (RFC 5322, 3.6.4).
"""

import hashlib
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any

SUBJECT = "subject"
SUBJECT_CHARACTERS_MAX = 200
DEFAULT_SUBJECT_CHARACTERS = 78
NO_SUBJECT = "(no subject)"
_BREAKING = frozenset({"Cc", "Cs", "Zl", "Zp"})
_IMPORTANCE = {"now": "high", "low": "low"}
_WRITTEN = SMTP.clone(cte_type="7bit")
_FOLDED = _WRITTEN.clone(max_line_length=900)  # a folded Message-ID would be a different one


def meta_problem(meta: dict[str, Any] | None) -> str:
    """Return why that meta can't become a mail; empty if it can."""
    fields = meta or {}
    if set(fields) - {SUBJECT}:
        return f"a mail's only meta field is {SUBJECT}"
    subject = fields.get(SUBJECT, "")
    if not isinstance(subject, str) or len(subject) > SUBJECT_CHARACTERS_MAX:
        return f"meta.{SUBJECT} must be a string of at most {SUBJECT_CHARACTERS_MAX} characters"
    if any(unicodedata.category(character) in _BREAKING for character in subject):
        return f"meta.{SUBJECT} must be one line without control characters"
    return ""


def new_message_id(origin: str, domain: str, client_message_id: str) -> str:
    """Make a Message-ID. `origin` identifies the workspace, because client_message_ids may repeat
    elsewhere."""
    digest = hashlib.sha256(b"\0".join((origin.encode(), client_message_id.encode())))
    return f"<{digest.hexdigest()[:40]}@{domain}>"


def render(
    *,
    message_id: str,
    in_reply_to: str | None,
    sender: Address,
    recipients: Sequence[str],
    meta: dict[str, Any] | None,
    text: str,
    priority: str,
    accepted_ms: int,
) -> bytes:
    """Return the mail as bytes with CRLF. `message_id` and `in_reply_to` are Message-IDs."""
    mail = EmailMessage(policy=_WRITTEN)
    mail["Message-ID"] = message_id
    mail["Date"] = format_datetime(datetime.fromtimestamp(accepted_ms // 1000, UTC))
    mail["From"] = sender
    mail["To"] = [Address(addr_spec=address) for address in recipients]
    mail["Subject"] = (meta or {}).get(SUBJECT) or _first_line(text)
    if in_reply_to is not None:
        mail["In-Reply-To"] = in_reply_to
        mail["References"] = in_reply_to
    if priority in _IMPORTANCE:
        mail["Importance"] = _IMPORTANCE[priority]
    mail["Auto-Submitted"] = "auto-generated"  # suppresses vacation replies (RFC 3834)
    mail.set_content(text, charset="utf-8", cte="quoted-printable")
    return mail.as_bytes(policy=_FOLDED)


def _first_line(text: str) -> str:
    for line in text[:10_000].splitlines():
        plain = "".join(
            " " if unicodedata.category(character) in _BREAKING else character
            for character in line.strip()[:DEFAULT_SUBJECT_CHARACTERS]
        ).strip()
        if plain:
            return plain
    return NO_SUBJECT
