"""Take secrets, texts and people's names out before a support bundle is written."""

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
from appliance.kernel.ownership import read_regular
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
# Log line fields whose texts this program writes. All other fields are kept only as numbers.
LOG_FIELDS = frozenset(
    {"level", "ts", "msg", "code", "store", "error_type", "frames", "method", "route", "loop"}
)


class Redaction:
    """A filter for everything that must not leave the machine.

    secrets  values that occur nowhere in the result
    names    text → replacement: this machine's paths, and its name
    """

    def __init__(self, secrets: Iterable[str], names: Mapping[str, str]) -> None:
        known = {text for text in secrets if len(text) >= SECRET_BYTES_MIN}
        self._names = dict(sorted(names.items(), key=lambda item: -len(item[0])))
        alternatives = sorted(map(re.escape, known), key=len, reverse=True)
        self._known = re.compile("|".join(alternatives)) if alternatives else None

    def text(self, text: str) -> str:
        """Return the text without secrets, addresses, names and long random words."""
        if self._known is not None:
            text = self._known.sub(SECRET, text)
        text = _MAIL.sub("[mail address]", _URL.sub(_short_url, text))
        for name, replacement in self._names.items():
            text = text.replace(name, replacement)
        return _WORD.sub(_short_word, _HOME.sub(r"\1[user]", text))

    def value(self, value: Any) -> Any:
        """Redact every text inside a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return value

    def log_line(self, line: bytes) -> bytes:
        """Redact a log line with its end. Return nothing for a line that this program did not
        write."""
        try:
            fields = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return b""
        if not isinstance(fields, dict) or "level" not in fields or "msg" not in fields:
            return b""
        kept = {}
        for name, value in fields.items():
            of_library = name == "msg" and "logger" in fields
            if isinstance(value, bool | int | float) or value is None:
                kept[self.text(name)] = value
            elif name in LOG_FIELDS and not of_library:
                kept[name] = self.value(value)
        return msgspec.json.encode(kept) + b"\n"


def _short_url(match: re.Match[str]) -> str:
    rest = "/[path]" if match[4] not in ("", "/") else match[4]
    return f"{match[1]}{match[3]}{rest}"


def _short_word(match: re.Match[str]) -> str:
    word = match[0]
    random = any(c.isdigit() for c in word) and any(c.isalpha() for c in word)
    return LONG if random and not _UUID.fullmatch(word) else word


def names_of(datadir: DataDir) -> dict[str, str]:
    """Return this machine's paths and names, with their replacements."""
    names = {str(datadir.workspace): "[workspace]", str(datadir.workspace.resolve()): "[workspace]"}
    with suppress(RuntimeError):
        names[str(Path.home())] = "~"
    host = socket.gethostname()
    if len(host) >= _HOST_LENGTH_MIN and host != "localhost":
        names[host] = "[host]"
    return {name: by for name, by in names.items() if len(name) > 1}


def secrets_of(context: Context, given: Any) -> set[str]:
    """Return every secret in the workspace, the given settings or the environment, and the texts
    and names in the settings."""
    datadir = context.datadir
    server = datadir.read_server()
    secrets = {server.auth_token} if server else set()
    secrets |= {value for name, value in os.environ.items() if is_secret_name(name)}
    files = [datadir.token_file, *(datadir.dir / "identity").glob("**/*")]
    for name, value in _entries(given):
        secrets |= {text for text in (name, value) if isinstance(text, str)}
        if name.endswith("_file") and isinstance(value, str):
            files.append(datadir.workspace / value)
    for path in files:
        secrets |= _texts_of(path)
    for _, connection in context.opened():
        secrets |= _in_store(connection)
    return secrets - {"127.0.0.1", "localhost"}


def _texts_of(path: Path) -> set[str]:
    """Return the single secret in a file, or the long texts in a JSON object."""
    try:
        text = read_regular(path, _FILE_BYTES_MAX).decode("utf-8-sig", "replace")
    except OSError:
        return set()
    try:
        entries = _entries(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return {line.strip() for line in text.splitlines()}
    return {value for _, value in entries if isinstance(value, str) and len(value) > 20}


def _in_store(connection: sqlite3.Connection) -> set[str]:
    """Return the values from columns whose names suggest a secret or an address."""
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


def _entries(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each name and value inside a JSON value, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _entries(inner, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _entries(inner, name)
    yield name, value
