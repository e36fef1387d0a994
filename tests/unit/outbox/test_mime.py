"""Letters: what stands in them comes back as it was said, and nothing becomes a header."""

from email import message_from_bytes, policy
from email.headerregistry import Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.outbox import destination, mime
from appliance.outbox.destination import BadDestination

HEADERS = [
    "Message-ID", "Date", "From", "To", "Subject", "Auto-Submitted", "Content-Type",
    "Content-Transfer-Encoding", "MIME-Version",
]  # fmt: skip
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def written(text="hello", meta=None, **more):
    values = {
        "own_id": "<a@example.com>", "answers": None,
        "sender": Address("Ägentlip", addr_spec="agentlip@example.com"),
        "recipients": ["ops@example.com", "b@example.org"], "meta": meta, "text": text,
        "priority": "next", "accepted_ms": 1_700_000_000_123, **more,
    }  # fmt: skip
    raw = mime.written(**values)
    return raw, message_from_bytes(raw, policy=policy.SMTP)


def lines(text):
    """Mail has line ends of its own."""
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")


@given(text=texts, subject=texts.map(lambda one: one[: mime.SUBJECT_CHARACTERS_MAX]))
def test_text_and_subject_come_back_and_no_header_is_added(text, subject):
    meta = {"subject": subject}
    if mime.wrong_with(meta):
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
def test_what_could_become_another_header_is_wrong(meta):
    assert mime.wrong_with(meta)


def test_a_long_subject_in_any_alphabet_comes_back_whole():
    for one in ("ж", "x", "😀", "é "):
        subject = (one * mime.SUBJECT_CHARACTERS_MAX)[: mime.SUBJECT_CHARACTERS_MAX].strip()
        _, mail = written(meta={"subject": subject})
        assert mail["Subject"] == subject


def test_without_a_subject_the_first_line_is_it():
    assert written("\n\n  Build failed \nmore")[1]["Subject"] == "Build failed"
    assert written("a\tb")[1]["Subject"] == "a b"
    assert written("x" * 500)[1]["Subject"] == "x" * mime.DEFAULT_SUBJECT_CHARACTERS
    assert written(" \n")[1]["Subject"] == mime.NO_SUBJECT


def test_a_message_id_is_never_folded_and_differs_by_workspace():
    domain = ".".join(["d" * 60] * 4)
    own = mime.message_id("ws-1", domain, "build-1")
    raw, _ = written(own_id=own)
    assert f"Message-ID: {own}\r\n".encode() in raw
    assert own == mime.message_id("ws-1", domain, "build-1")
    assert own != mime.message_id("ws-2", domain, "build-1")
    assert own != mime.message_id("ws-1", domain, "build-2")


def test_an_answer_names_what_it_answers_and_what_is_urgent_says_so():
    _, mail = written(answers="<b@example.com>", priority="now")
    assert mail["In-Reply-To"] == mail["References"] == "<b@example.com>"
    assert mail["Importance"] == "high"
    assert mail["Date"] == "Tue, 14 Nov 2023 22:13:20 +0000"


def test_addresses_are_stored_once_with_domains_in_lower_case():
    assert destination.mail("mailto:Ops@Example.COM, b@x.org,Ops@example.com") == (
        "mailto:Ops@example.com,b@x.org"
    )
    assert destination.mail("ops@example.com") == "mailto:ops@example.com"
    assert destination.shown("queue", "mailto:a@x.org") == "mailto:a@x.org"


@pytest.mark.parametrize(
    "to",
    [
        "mailto:", "mailto:ops", "mailto:a@b@c", "mailto:a@x.org,", "mailto:a b@x.org",
        "mailto:a@x.org\r\nRCPT TO:<eve@x.org>", "mailto:<a@x.org>", 'mailto:"a"@x.org',
        "mailto:victim%other.org@x.org", "mailto:other.org!victim@x.org", "mailto:ä@x.org",
        "mailto:a@[10.0.0.1]", "mailto:a@-x.org", "mailto:a@x..org", "mailto:-a@x.org",
        "mailto:a@x.org?bcc=eve@x.org", f"mailto:{'a' * 65}@x.org",
    ],
)  # fmt: skip
def test_what_is_no_plain_address_is_refused(to):
    with pytest.raises(BadDestination):
        destination.mail(to)
