"""Mails of a mailbox file as messages to import."""

import io
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.sdk.importer import BadEntry, ImportItem
from appliance.sdk.mbox import body_text, read_mbox, thread_of


def _mails(raw: bytes) -> tuple[list[ImportItem | BadEntry], int]:
    attachments: list[int] = []
    items = list(read_mbox(io.BytesIO(raw), "mail", attachments.append))
    return items, sum(attachments)


MBOX = (
    b"From a@example.org Mon Feb  2 10:00:00 2026\n"
    b"From: =?iso-8859-1?q?J=F6rg?= <a@example.org>\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\n"
    b"Message-ID: <1@x>\nContent-Type: text/plain; charset=iso-8859-1\n\n"
    b"Gr\xfc\xdfe\n>From the start\n\nFrom here on it goes\n\n"
    b"From b@example.org Mon Feb  2 11:00:00 2026\n"
    b"From: b@example.org\nSubject: Re: =?utf-8?b?R3LDvMOfZQ==?=\n\nraw \xc3\xbc\n"
)


@pytest.mark.parametrize(
    ("subject", "thread"),
    [
        ("Plan", "Plan"),
        ("Re: Plan", "Plan"),
        ("RE: Fwd: re[2]: AW:  Plan", "Plan"),
        ("[list] Re: Plan", "[list] Plan"),
        ("Re: [list] Plan", "[list] Plan"),
        ("Re: [list] Re: [list] Plan", "[list] Plan"),
        ("[PATCH 1/2] x: y", "[PATCH 1/2] x: y"),
        ("Regarding: Plan", "Regarding: Plan"),
        ("  ", "(no subject)"),
        ("Re:", "(no subject)"),
        ("a\n b\tc", "a b c"),
        ("x" * 500, "x" * 200),
    ],
)
def test_thread_is_the_subject_without_reply_prefixes(subject: str, thread: str) -> None:
    assert thread_of(subject) == thread


def test_mailbox_is_split_into_decoded_mails_with_threads() -> None:
    (first, second), skipped = _mails(MBOX)
    assert isinstance(first, ImportItem)
    assert isinstance(second, ImportItem)
    assert first.sender == "Jörg <a@example.org>"
    assert first.topic == second.topic == "Grüße"
    assert first.content == "Grüße\nFrom the start\n\nFrom here on it goes"
    assert second.content == "raw ü"
    assert skipped == 0
    assert _mails(MBOX)[0] == [first, second]


def test_same_mail_in_two_mailboxes_has_one_key() -> None:
    first = _mails(MBOX)[0][0]
    moved = _mails(MBOX[MBOX.index(b"From b@") :] + b"\n" + MBOX)[0][1]
    assert isinstance(first, ImportItem)
    assert isinstance(moved, ImportItem)
    assert first.key == moved.key


def test_attachments_are_counted_and_skipped() -> None:
    mail = EmailMessage()
    mail.set_content("see below")
    mail.add_alternative("<p>see <b>below</b></p>", subtype="html")
    mail.add_attachment(b"\0\1", maintype="image", subtype="png", filename="a.png")
    assert body_text(mail) == ("see below", 1)


def test_mail_with_only_html_is_read_as_text() -> None:
    mail = EmailMessage()
    html = "<head><style>p {}</style></head><p>a &amp; b</p><script>x()</script><p>c</p>"
    mail.set_content(html, subtype="html")
    assert body_text(mail) == ("a & b\nc", 0)


@pytest.mark.parametrize("charset", ["no-such-charset", "utf-8", "ascii", "unknown-8bit"])
def test_mail_with_a_wrong_charset_is_decoded(charset: str) -> None:
    raw = f"From: x\nContent-Type: text/plain; charset={charset}\n\n".encode() + b"a\xe9b\0\n"
    (item,), _ = _mails(b"From x Mon Feb  2 10:00:00 2026\n" + raw)
    assert isinstance(item, ImportItem)
    assert item.content == "aéb\ufffd"


def test_other_file_is_not_a_mailbox() -> None:
    (bad,), _ = _mails(b"just some text\n")
    assert isinstance(bad, BadEntry)


@given(st.binary(max_size=400))
def test_random_bytes_raise_nothing(noise: bytes) -> None:
    items, _ = _mails(b"From x Mon Feb  2 10:00:00 2026\nSubject: " + noise)
    for item in items:
        if isinstance(item, ImportItem):
            item.content.encode()
            item.sender.encode()
            assert item.topic
            item.topic.encode()
