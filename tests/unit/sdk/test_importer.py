"""Files as messages: what a line or a mail becomes, and what it is known by."""

import io
from email.message import EmailMessage
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.sdk.importer import Bad, Item, item_key, split_text
from appliance.sdk.jsonl import LINE_BYTES_MAX, Fields, read_jsonl
from appliance.sdk.mbox import body_text, read_mbox, thread_of

GOOD = b'{"channel": "c", "topic": "t", "sender": "s", "content": "x"}\n'


def _lines(raw: bytes, source: str = "f", **fields: Any) -> list[Item | Bad]:
    return list(read_jsonl(io.BytesIO(raw), source, Fields(**fields)))


def _mails(raw: bytes) -> tuple[list[Item | Bad], int]:
    attachments: list[int] = []
    items = list(read_mbox(io.BytesIO(raw), "mail", attachments.append))
    return items, sum(attachments)


# -- lines of JSON -------------------------------------------------------------------


def test_line_becomes_a_message() -> None:
    (item,) = _lines(GOOD)
    assert isinstance(item, Item)
    assert (item.place, item.channel, item.topic, item.sender, item.content) == (
        1,
        "c",
        "t",
        "s",
        "x",
    )


def test_equal_lines_are_different_messages_and_each_has_always_the_same_key() -> None:
    first, second = _lines(GOOD * 2)
    again = _lines(GOOD * 2)
    other = _lines(GOOD * 2, source="g")
    keys = [each.key for each in (first, second, *other) if isinstance(each, Item)]
    assert len(set(keys)) == 4
    assert [first, second] == again


def test_line_with_an_id_is_known_by_it_wherever_it_stands() -> None:
    line = GOOD.replace(b"}", b', "id": 7}')
    (here,) = _lines(line)
    _, there = _lines(GOOD + line, source="elsewhere")
    assert isinstance(here, Item)
    assert isinstance(there, Item)
    assert here.key == there.key


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe", "not JSON"),
        (b'{"channel": "c", "topic": "t", "content": "x"}', "'sender' is missing"),
        (b'{"channel": "c", "topic": "t", "sender": 5, "content": "x"}', "must be a string"),
        (b'{"channel": "", "topic": "t", "sender": "s", "content": "x"}', "is empty"),
        (GOOD.replace(b"}", b', "id": []}').strip(), "'id' must be"),
        (b'{"content": "' + b"x" * LINE_BYTES_MAX + b'"}', "longer than"),
    ],
)
def test_bad_line_is_told_with_its_number_and_the_rest_is_read(line: bytes, reason: str) -> None:
    good, bad, after = _lines(GOOD + line + b"\n" + GOOD)
    assert isinstance(bad, Bad)
    assert bad.place == 2
    assert reason in bad.reason
    assert isinstance(good, Item)
    assert isinstance(after, Item)
    assert after.place == 3


def test_flags_fill_in_and_other_fields_can_be_named() -> None:
    raw = b'{"who": "me", "text": "x"}'
    (item,) = _lines(raw, sender_field="who", content_field="text", channel="c", topic="t")
    assert isinstance(item, Item)
    assert (item.channel, item.topic, item.sender, item.content) == ("c", "t", "me", "x")


def test_blank_lines_byte_order_mark_and_missing_last_newline_do_no_harm() -> None:
    items = _lines(b"\xef\xbb\xbf" + GOOD + b"\r\n\n  \n" + GOOD.strip())
    assert [each.place for each in items] == [1, 5]
    assert all(isinstance(each, Item) for each in items)


# -- long content ----------------------------------------------------------------------


@given(st.text(max_size=400), st.integers(4, 50))
def test_parts_fit_and_together_are_the_whole(text: str, bytes_max: int) -> None:
    parts = split_text(text, bytes_max)
    assert "".join(parts) == text
    assert all(len(part.encode()) <= bytes_max for part in parts)


def test_parts_end_after_a_line_where_possible() -> None:
    assert split_text("aaa\nbbb\ncccccccc", 6) == ["aaa\n", "bbb\n", "cccccc", "cc"]


def test_key_tells_parts_from_their_sum() -> None:
    assert item_key("ab", "c") != item_key("a", "bc")
    assert len(item_key("x")) <= 255


# -- mailboxes ---------------------------------------------------------------------------


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
def test_thread_is_the_subject_without_reply_marks(subject: str, thread: str) -> None:
    assert thread_of(subject) == thread


MBOX = (
    b"From a@example.org Mon Feb  2 10:00:00 2026\n"
    b"From: =?iso-8859-1?q?J=F6rg?= <a@example.org>\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\n"
    b"Message-ID: <1@x>\nContent-Type: text/plain; charset=iso-8859-1\n\n"
    b"Gr\xfc\xdfe\n>From the start\n\nFrom here on it goes\n\n"
    b"From b@example.org Mon Feb  2 11:00:00 2026\n"
    b"From: b@example.org\nSubject: Re: =?utf-8?b?R3LDvMOfZQ==?=\n\nraw \xc3\xbc\n"
)


def test_mailbox_is_cut_into_mails_decoded_and_threaded() -> None:
    (first, second), skipped = _mails(MBOX)
    assert isinstance(first, Item)
    assert isinstance(second, Item)
    assert first.sender == "Jörg <a@example.org>"
    assert first.topic == second.topic == "Grüße"
    assert first.content == "Grüße\nFrom the start\n\nFrom here on it goes"
    assert second.content == "raw ü"
    assert skipped == 0
    assert _mails(MBOX)[0] == [first, second]


def test_same_mail_in_two_mailboxes_is_one() -> None:
    first = _mails(MBOX)[0][0]
    moved = _mails(MBOX[MBOX.index(b"From b@") :] + b"\n" + MBOX)[0][1]
    assert isinstance(first, Item)
    assert isinstance(moved, Item)
    assert first.key == moved.key


def test_attachments_are_counted_and_left_out() -> None:
    mail = EmailMessage()
    mail.set_content("see below")
    mail.add_alternative("<p>see <b>below</b></p>", subtype="html")
    mail.add_attachment(b"\0\1", maintype="image", subtype="png", filename="a.png")
    assert body_text(mail) == ("see below", 1)


def test_mail_of_html_only_gives_its_text() -> None:
    mail = EmailMessage()
    html = "<head><style>p {}</style></head><p>a &amp; b</p><script>x()</script><p>c</p>"
    mail.set_content(html, subtype="html")
    assert body_text(mail) == ("a & b\nc", 0)


@pytest.mark.parametrize("charset", ["no-such-charset", "utf-8", "ascii", "unknown-8bit"])
def test_wrong_charset_is_survived(charset: str) -> None:
    raw = f"From: x\nContent-Type: text/plain; charset={charset}\n\n".encode() + b"a\xe9b\0\n"
    (item,), _ = _mails(b"From x Mon Feb  2 10:00:00 2026\n" + raw)
    assert isinstance(item, Item)
    assert item.content == "aéb\ufffd"


def test_other_file_is_no_mailbox() -> None:
    (bad,), _ = _mails(b"just some text\n")
    assert isinstance(bad, Bad)


@given(st.binary(max_size=400))
def test_no_mail_breaks_the_reader(noise: bytes) -> None:
    items, _ = _mails(b"From x Mon Feb  2 10:00:00 2026\nSubject: " + noise)
    for item in items:
        if isinstance(item, Item):
            item.content.encode()
            item.sender.encode()
            assert item.topic
            item.topic.encode()
