"""Takes secrets, texts and names of people out of what a support bundle contains."""

import os
import re
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from appliance.checks.context import Context
from appliance.kernel.log import is_secret_name
from appliance.workspace.datadir import DataDir

SECRET = "[secret]"
LONG = "[long word]"
SECRET_BYTES_MIN = 6
SECRETS_MAX = 20_000
_FILE_BYTES_MAX = 65_536
_HOST_LENGTH_MIN = 4
_URL = re.compile(r"\b([a-z][a-z0-9+.-]*://)([^\s/?#\"'<>]*@)?([^\s/?#\"'<>]*)([^\s\"'<>]*)", re.I)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")
_HOME = re.compile(r"(/home/|/Users/)[^/\s\"']+")
_WORD = re.compile(r"[A-Za-z0-9_+=-]{32,}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)
_TELLING_COLUMNS = ("secret", "token", "password", "key", "url", "hash")
_SECRETS = "secrets of this workspace"
_ADDRESSES = "paths and credentials of addresses"
_MAILS = "mail addresses"
_MACHINE = "paths and names of this machine"
_HOMES = "home directories"
_NO_JSON = "lines of the log that are not JSON"
_FIELDS = "texts in fields of the log"
_WORDS = "long words with digits, which may be keys"
KINDS = (_SECRETS, _ADDRESSES, _MAILS, _MACHINE, _HOMES, _NO_JSON, _FIELDS, _WORDS)
"""Everything that is counted. On each machine other kinds occur, so all have a count."""
# Fields of log lines whose texts this program writes. Other fields are kept if they are numbers.
LOG_FIELDS = frozenset(
    {"level", "ts", "msg", "code", "store", "error_type", "frames", "method", "route", "loop"}
)


class Redaction:
    """Replaces what must not leave the machine, and counts what it replaced.

    secrets  values that occur nowhere in the result
    names    text → what replaces it: paths of this machine, and its name
    """

    def __init__(self, secrets: Iterable[str], names: Mapping[str, str]) -> None:
        self.counts = dict.fromkeys(KINDS, 0)
        self._secrets = {text for text in secrets if len(text) >= SECRET_BYTES_MIN}
        self._names = dict(sorted(names.items(), key=lambda item: -len(item[0])))
        alternatives = sorted(map(re.escape, self._secrets), key=len, reverse=True)
        self._known = re.compile("|".join(alternatives)) if alternatives else None

    def text(self, text: str) -> str:
        """The text without secrets, addresses, names and long random words."""
        if self._known is not None:
            text = self._replace(self._known, SECRET, text, _SECRETS)
        text, count = _URL.subn(_short_url, text)
        self.count(_ADDRESSES, count)
        text = self._replace(_MAIL, "[mail address]", text, _MAILS)
        for name, replacement in self._names.items():
            self.count(_MACHINE, text.count(name))
            text = text.replace(name, replacement)
        text = self._replace(_HOME, r"\1[user]", text, _HOMES)
        return _WORD.sub(self._word, text)

    def value(self, value: Any) -> Any:
        """The same for every text inside a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return value

    def log_line(self, line: bytes) -> bytes | None:
        """A line of the log; None if it is not one that this program wrote."""
        try:
            fields = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            fields = None
        if not isinstance(fields, dict) or "level" not in fields or "msg" not in fields:
            self.count(_NO_JSON, 1)
            return None
        kept = {}
        for name, value in fields.items():
            of_library = name == "msg" and "logger" in fields
            if isinstance(value, bool | int | float) or value is None:
                kept[self.text(name)] = value
            elif name in LOG_FIELDS and not of_library:
                kept[name] = self.value(value)
            else:
                self.count(_FIELDS, 1)
        return msgspec.json.encode(kept)

    def finds_secret(self, content: bytes) -> bool:
        """Whether a secret is in what would be written. It should never be."""
        text = content.decode("utf-8", "replace")
        return self._known is not None and self._known.search(text) is not None

    def count(self, what: str, number: int) -> None:
        self.counts[what] += number

    def _replace(self, pattern: re.Pattern[str], by: str, text: str, what: str) -> str:
        text, count = pattern.subn(by, text)
        self.count(what, count)
        return text

    def _word(self, match: re.Match[str]) -> str:
        word = match[0]
        random = any(c.isdigit() for c in word) and any(c.isalpha() for c in word)
        if not random or _UUID.fullmatch(word):
            return word
        self.count(_WORDS, 1)
        return LONG


def _short_url(match: re.Match[str]) -> str:
    rest = "/[path]" if match[4] not in ("", "/") else match[4]
    return f"{match[1]}{match[3]}{rest}"


def names_of(datadir: DataDir) -> dict[str, str]:
    """Paths and names of this machine, and what replaces them."""
    names = {str(datadir.workspace): "[workspace]", str(datadir.workspace.resolve()): "[workspace]"}
    with suppress(RuntimeError):
        names[str(Path.home())] = "~"
    host = socket.gethostname()
    if len(host) >= _HOST_LENGTH_MIN and host != "localhost":
        names[host] = "[host]"
    return {name: by for name, by in names.items() if len(name) > 1}


def secrets_of(context: Context, settings: Any) -> set[str]:
    """Every secret that the workspace, its settings or the environment hold."""
    secrets: set[str] = set()
    datadir = context.datadir
    for path in (datadir.token_file, datadir.server_file, *_files(datadir.dir / "identity")):
        secrets |= _texts_of(path)
    secrets |= {value for name, value in os.environ.items() if is_secret_name(name)}
    for name, value in _leaves(settings):
        if name.endswith("_file") and isinstance(value, str):
            path = Path(value)
            secrets |= _texts_of(path if path.is_absolute() else datadir.workspace / path)
    for _, connection in context.opened():
        secrets |= _in_store(connection)
    return {text for text in secrets if text not in ("127.0.0.1", "localhost")}


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []


def _texts_of(path: Path) -> set[str]:
    """A file of one secret, or the long texts of a JSON object."""
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return set()
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {line.strip() for line in text.splitlines()}
    named = {"auth_token"} if isinstance(value, dict) and "auth_token" in value else None
    return {text for name, text in _leaves(value) if isinstance(text, str)
            and (named is None or name in named) and len(text) > 20}  # fmt: skip


def _in_store(connection: sqlite3.Connection) -> set[str]:
    """The values of columns whose names suggest a secret or an address."""
    secrets: set[str] = set()
    with suppress(sqlite3.Error):
        columns = connection.execute(
            "SELECT t.name, c.name FROM pragma_table_list AS t, pragma_table_info(t.name) AS c"
            " WHERE t.type = 'table' AND t.schema = 'main'"
        ).fetchall()
        for table, column in columns:
            if not any(word in column.lower() for word in _TELLING_COLUMNS) or table == "meta":
                continue
            with suppress(sqlite3.Error):
                rows = connection.execute(
                    f'SELECT DISTINCT "{column}" FROM "{table}" LIMIT ?', (SECRETS_MAX,)
                )
                secrets |= {row[0] for row in rows if isinstance(row[0], str) and len(row[0]) > 15}
    return secrets


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, name)
    else:
        yield name, value
