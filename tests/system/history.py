"""Real conversation history of this machine: commits of a repository, Debian changelogs."""

import gzip
import re
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CHANGELOGS = Path("/usr/share/doc")
GIT_SECONDS_MAX = 120
FILE_BYTES_MAX = 64 * 1024 * 1024
TITLE_CHARACTERS_MAX = 200
FIELD, RECORD = b"\x1f", b"\x00"

HEADER = re.compile(r"^\w[\w+.-]* \([^()\s]+\)")
TRAILER = re.compile(r"^ --\s*(.*?)\s*<([^>]*)>\s*(.*)$")


class PastMessage(NamedTuple):
    """One message of the history. `key` identifies it."""

    topic: str
    sender: str
    content: str
    key: str


def commits(repository: Path) -> list[PastMessage]:
    """The history of a git repository, oldest first; sender: author, topic: month."""
    form = "%H%x1f%an%x1f%ad%x1f%B"
    done = subprocess.run(
        ["git", "-C", str(repository), "-c", "log.showSignature=false", "log", "-z", "--reverse",
         "--date=format:%Y-%m", "--encoding=UTF-8", f"--format={form}"],
        capture_output=True, timeout=GIT_SECONDS_MAX, check=False,
    )  # fmt: skip
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise OSError(words[-1] if words else "git log failed")
    entries = []
    for record in done.stdout.split(RECORD):
        fields = [part.decode("utf-8", "replace") for part in record.split(FIELD, 3)]
        if len(fields) == 4:
            digest, author, month, text = fields
            entries.append(PastMessage(month, _name(author), text.strip() or "(empty)", digest))
    return entries


def changelogs(folder: Path = CHANGELOGS) -> list[PastMessage]:
    """Every entry of every package's Debian changelog; sender: maintainer, topic: package."""
    entries = []
    for path in sorted(folder.glob("*/changelog.Debian.gz")):
        package = path.parent.name
        oldest_first = reversed(list(_entries(_text(path))))
        for number, (sender, text) in enumerate(oldest_first):
            entries.append(PastMessage(package, sender, text, f"{package} {number} {text[:200]}"))
    return entries


def _text(path: Path) -> str:
    try:
        with gzip.open(path) as file:
            raw = file.read(FILE_BYTES_MAX)
    except (OSError, EOFError, zlib.error):
        return ""  # a dangling link or a damaged file: skip it
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")  # entries older than UTF-8


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Maintainer and text of each entry of one changelog, newest first."""
    sender = "unknown"
    lines: list[str] = []
    for line in text.splitlines():
        if HEADER.match(line):
            if lines:
                yield sender, "\n".join(lines).strip()
            sender, lines = "unknown", [line]
            continue
        signed = TRAILER.match(line)
        if signed:
            sender = _name(signed[1] or signed[2])
        if lines:  # what stands before the first header belongs to nothing
            lines.append(line.rstrip())
    if lines:
        yield sender, "\n".join(lines).strip()


def _name(text: str) -> str:
    clean = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(clean.split())[:TITLE_CHARACTERS_MAX] or "unknown"
