"""Mails as bytes: text and subject are preserved, and no input becomes a header."""

from email import message_from_bytes, policy
from email.headerregistry import Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.outbox import mime

HEADERS = [
    "Message-ID", "Date", "From", "To", "Subject", "Auto-Submitted", "Content-Type",
    "Content-Transfer-Encoding", "MIME-Version",
]  # fmt: skip


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def written(text="hello", meta=None, **more):
    values = {
        "message_id": "<a@example.com>", "in_reply_to": None,
        "sender": Address("Ägentlip", addr_spec="agentlip@example.com"),
        "recipients": ["ops@example.com", "b@example.org"], "meta": meta, "text": text,
        "priority": "next", "accepted_ms": 1_700_000_000_123, **more,
    }  # fmt: skip
    raw = mime.render(**values)
    return raw, message_from_bytes(raw, policy=policy.SMTP)


def lines(text):
    """Mail has line ends of its own."""
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")


@given(text=texts, subject=texts.map(lambda text_: text_[: mime.SUBJECT_CHARACTERS_MAX]))
def test_text_and_subject_come_back_and_no_header_is_added(text, subject):
    meta = {"subject": subject}
    if mime.meta_problem(meta):
        meta = {"subject": "a subject"}
    raw, mail = written(text, meta)
    assert sorted(mail.keys()) == sorted(HEADERS)
    if meta["subject"].strip():
        assert " ".join(mail["Subject"].split()) == " ".join(meta["subject"].split())
    assert lines(mail.get_content()) == lines(text)
    assert raw.isascii()
    assert max(len(line) for line in raw.split(b"\r\n")) <= 998
    assert b"\n" not in raw.replace(b"\r\n", b"")


@pytest.mark.parametrize(
    "meta",
    [
        {"subject": "hello\r\nBcc: eve@example.com"},
        {"subject": "hello\nX: y"},
        {"subject": "hello\u2028X: y"},
        {"subject": "\x0bX: y"},
        {"subject": "\x85X: y"},
        {"subject": "\0"},
        {"subject": 7},
        {"subject": "x" * 201},
        {"bcc": "eve@example.com"},
    ],
)
def test_header_injection_is_refused(meta):
    assert mime.meta_problem(meta)


def test_default_subject_is_the_first_line():
    assert written("\n\n  Build failed \nmore")[1]["Subject"] == "Build failed"
    assert written("a\tb")[1]["Subject"] == "a b"
    assert written("x" * 500)[1]["Subject"] == "x" * mime.DEFAULT_SUBJECT_CHARACTERS
    assert written(" \n")[1]["Subject"] == mime.NO_SUBJECT


def test_a_message_id_is_never_folded_and_differs_by_workspace():
    domain = ".".join(["d" * 60] * 4)
    own = mime.new_message_id("ws-1", domain, "build-1")
    raw, _ = written(message_id=own)
    assert f"Message-ID: {own}\r\n".encode() in raw
    assert own == mime.new_message_id("ws-1", domain, "build-1")
    assert own != mime.new_message_id("ws-2", domain, "build-1")
    assert own != mime.new_message_id("ws-1", domain, "build-2")


def test_reply_and_priority_headers_are_set():
    _, mail = written(in_reply_to="<b@example.com>", priority="now")
    assert mail["In-Reply-To"] == mail["References"] == "<b@example.com>"
    assert mail["Importance"] == "high"
    assert mail["Date"] == "Tue, 14 Nov 2023 22:13:20 +0000"
