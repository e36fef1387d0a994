"""A send as a letter: its subject, its Message-ID and its bytes. Pure.

The bytes of a send are the same at every attempt, and so is its Message-ID: a server or a reader
who gets it twice knows the repetition by that (RFC 5322, 3.6.4).
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
_FOLDED = _WRITTEN.clone(max_line_length=900)  # a Message-ID that is folded is another one


def wrong_with(meta: dict[str, Any] | None) -> str:
    """What a mail can't be made of, in a sentence; empty when it can."""
    told = meta or {}
    if set(told) - {SUBJECT}:
        return f"of meta, mail carries {SUBJECT} only"
    subject = told.get(SUBJECT, "")
    if not isinstance(subject, str) or len(subject) > SUBJECT_CHARACTERS_MAX:
        return f"meta.{SUBJECT} is a text of at most {SUBJECT_CHARACTERS_MAX} characters"
    if any(unicodedata.category(one) in _BREAKING for one in subject):
        return f"meta.{SUBJECT} is one line, without control characters"
    return ""


def message_id(origin: str, domain: str, client_message_id: str) -> str:
    """`origin` is the workspace's: others may use the same ids of sends."""
    digest = hashlib.sha256(b"\0".join((origin.encode(), client_message_id.encode())))
    return f"<{digest.hexdigest()[:40]}@{domain}>"


def written(
    *,
    own_id: str,
    answers: str | None,
    sender: Address,
    recipients: Sequence[str],
    meta: dict[str, Any] | None,
    text: str,
    priority: str,
    accepted_ms: int,
) -> bytes:
    """The letter with lines as they travel. `own_id` and `answers` are Message-IDs."""
    mail = EmailMessage(policy=_WRITTEN)
    mail["Message-ID"] = own_id
    mail["Date"] = format_datetime(datetime.fromtimestamp(accepted_ms // 1000, UTC))
    mail["From"] = sender
    mail["To"] = [Address(addr_spec=one) for one in recipients]
    mail["Subject"] = (meta or {}).get(SUBJECT) or _first_line(text)
    if answers is not None:
        mail["In-Reply-To"] = answers
        mail["References"] = answers
    if priority in _IMPORTANCE:
        mail["Importance"] = _IMPORTANCE[priority]
    mail["Auto-Submitted"] = "auto-generated"  # so that no holiday notice answers (RFC 3834)
    mail.set_content(text, charset="utf-8", cte="quoted-printable")
    return mail.as_bytes(policy=_FOLDED)


def _first_line(text: str) -> str:
    for line in text[:10_000].splitlines():
        plain = "".join(
            " " if unicodedata.category(one) in _BREAKING else one
            for one in line.strip()[:DEFAULT_SUBJECT_CHARACTERS]
        ).strip()
        if plain:
            return plain
    return NO_SUBJECT
