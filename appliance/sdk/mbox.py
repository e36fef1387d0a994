"""Reads a mailbox file as messages to import: sender from From, topic from the subject's thread.

The content is the text parts, decoded by their own charsets, or the text of the HTML part if
there is no other. Attachments are skipped and counted. The input may be a stream: one mail is
in memory at a time.

`mailbox.mbox` of the standard library is not used: it needs a file that it can seek in (standard
input is not one), reads lines and mails of any length, and splits a mail at every line that
begins with "From ", which sentences do.
"""

import re
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from html.parser import HTMLParser
from typing import BinaryIO

from appliance.kernel.blank import is_blank
from appliance.sdk.importer import BadEntry, ImportItem, item_key

MAIL_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 1024 * 1024
TITLE_CHARACTERS_MAX = 200
SENDER_CHARACTERS_MAX = 200
PARTS_MAX = 1000

# A separator has a time and a year. Sentences that begin with "From " rarely have both.
SEPARATOR = re.compile(rb"From \S.*\d{1,2}:\d{2}.*\d{4}|From \S+\s*$")
QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
REPLY = re.compile(
    r"^\s*(?:(?:re|fwd?|aw|wg|sv|vs|tr|antw|ref|rv|res)\s*(?:\[\d+\]|\(\d+\))?\s*:\s*)+",
    re.IGNORECASE,
)
LIST_TAG = re.compile(r"^\s*(\[[^\]\n]{1,60}\])\s*")


def read_mbox(
    file: BinaryIO, channel: str, count_attachments: Callable[[int], None]
) -> Iterator[ImportItem | BadEntry]:
    for number, raw in enumerate(_mails(file), 1):
        if raw is None:
            yield BadEntry(
                number, f"mail longer than {MAIL_BYTES_MAX:,} bytes, or not a mailbox file"
            )
            continue
        mail = message_from_bytes(QUOTED_FROM.sub(rb"\1", raw))
        content, attachments = body_text(mail)
        count_attachments(attachments)
        sender = _single_line(_header(mail, "From"), SENDER_CHARACTERS_MAX) or "unknown"
        topic = thread_of(_header(mail, "Subject"))
        # The same mail in two mailboxes is one message. Without an id, its bytes identify it.
        identity = mail.get("Message-ID") or raw
        key = item_key("mbox", channel, str(identity).strip(), sender, topic, content)
        yield ImportItem(number, channel, topic, sender, content, key)


def _mails(file: BinaryIO) -> Iterator[bytes | None]:
    """The mails between separator lines; None for a mail that is too long or malformed."""
    lines: list[bytes] = []
    size = 0
    after_blank = True
    begun = False
    while line := file.readline(LINE_BYTES_MAX):
        if after_blank and line.startswith(b"From ") and SEPARATOR.match(line):
            if begun:
                yield b"".join(lines) if size <= MAIL_BYTES_MAX else None
            begun, lines, size = True, [], 0
        elif begun:
            size += len(line)
            if size <= MAIL_BYTES_MAX:
                lines.append(line)
        elif line.strip():
            yield None
            return
        after_blank = line in (b"\n", b"\r\n")
    if begun:
        yield b"".join(lines) if size <= MAIL_BYTES_MAX else None


def thread_of(subject: str) -> str:
    """The subject without reply and forward prefixes: equal for a whole thread."""
    text = _single_line(subject, 10_000)
    tag = ""
    while True:
        shorter = REPLY.sub("", text)
        match = LIST_TAG.match(shorter)
        if match and (not tag or match[1] == tag):
            # "[list] Re: x" and "Re: [list] x" are one thread. The tag is added again below.
            tag, shorter = match[1], shorter[match.end() :]
        if shorter == text:
            break
        text = shorter
    title = f"{tag} {text}".strip() if tag else text.strip()
    return title[:TITLE_CHARACTERS_MAX].strip() or "(no subject)"


def body_text(mail: Message) -> tuple[str, int]:
    """The readable text of a mail, and the number of skipped attachments."""
    plain: list[str] = []
    rich: list[str] = []
    attachments = 0
    for number, part in enumerate(mail.walk()):
        if number >= PARTS_MAX:
            break
        if part.is_multipart():
            continue
        kind = part.get_content_type()
        named = part.get_filename() is not None
        if part.get_content_disposition() == "attachment" or (named and kind != "text/plain"):
            attachments += 1
        elif kind == "text/plain":
            plain.append(_decode(part))
        elif kind == "text/html":
            rich.append(_text_of_html(_decode(part)))
        else:
            attachments += 1
    text = "\n".join(plain) if plain else "\n".join(rich)
    text = text.replace("\r\n", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.strip("\n"), attachments


def _decode(part: Message) -> str:
    payload = part.get_payload(decode=True)
    return _piece(payload if isinstance(payload, bytes) else b"", part.get_content_charset())


def _header(mail: Message, name: str) -> str:
    value = mail.get(name)
    if value is None:
        return ""
    try:
        pieces = decode_header(value)
    except (HeaderParseError, ValueError):
        return str(value)
    return "".join(_piece(raw, charset) for raw, charset in pieces)


def _piece(raw: bytes | str, charset: str | None) -> str:
    if isinstance(raw, str):
        return raw
    for encoding in (charset or "ascii", "utf-8"):
        try:
            return raw.decode(encoding)
        except (LookupError, UnicodeDecodeError):
            continue
    return raw.decode("latin-1")


def _single_line(text: str, characters_max: int) -> str:
    clean = "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(clean.split())[:characters_max].strip()
    return "" if is_blank(line) else line


class _TextOfHtml(HTMLParser):
    BLOCKS = frozenset({"p", "div", "br", "tr", "li", "h1", "h2", "h3", "h4", "blockquote", "pre"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag in ("script", "style", "head"):
            self._hidden += 1
        elif tag in self.BLOCKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style", "head"):
            self._hidden = max(self._hidden - 1, 0)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(data)


def _text_of_html(html: str) -> str:
    parser = _TextOfHtml()
    parser.feed(html)
    parser.close()
    text = "".join(parser.pieces)
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
