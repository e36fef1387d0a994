"""Builds audit log records: the hash chain, and which facts a record may contain."""

import hashlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from appliance.kernel.log import is_secret_name, without_path

DETAIL_BYTES_MAX = 4096
TEXT_LENGTH_MAX = 200
ITEMS_MAX = 20
DEPTH_MAX = 5
HIDDEN = "[hidden]"
_HIDDEN_NAMES = frozenset({"link", "invite", "signature", "private_key"})
_encode = msgspec.json.Encoder(enc_hook=str).encode

Phase = Literal["began", "done", "refused", "failed"]


class AuditRecord(NamedTuple):
    """A row in the table `log`.

    seq       the row's number; 0: none yet
    act       an operation's method and path, `tool NAME`, or a command
    phase     `began` before the act; the others are its outcome
    began     for an outcome: the number of the record before the act; otherwise None
    actor     a principal's id, or the system user as `user:NAME` for a command
    via       http, mcp, or cli
    detail    an object in JSON
    previous  the former record's hash; "" for the first
    hash      SHA-256, in hexadecimal, over all other fields, as an array in JSON
    """

    seq: int
    at_ms: int
    act: str
    phase: Phase
    began: int | None
    actor: str
    via: str
    detail: str
    previous: str = ""
    hash: str = ""

    def behind(self, seq: int, digest: str) -> "AuditRecord":
        """Return a copy that follows the record with this number and hash."""
        linked = self._replace(seq=seq + 1, previous=digest)
        return linked._replace(hash=linked.expected_hash())

    def expected_hash(self) -> str:
        return hashlib.sha256(_encode(self[:-1])).hexdigest()


def detail_of(parts: Mapping[str, Any]) -> str:
    """Return the JSON for a record's detail, without secrets.

    If the JSON is larger than DETAIL_BYTES_MAX, parts are replaced by their size, the largest
    first.
    """
    kept = {name: redact(value, name) for name, value in parts.items() if value is not None}
    while len(text := _encode(kept)) > DETAIL_BYTES_MAX:
        largest = max(kept, key=lambda name: len(_encode(kept[name])))
        kept[largest] = {"omitted_bytes": len(_encode(kept[largest]))}
    return text.decode()


def redact(value: Any, name: str = "", depth: int = DEPTH_MAX) -> Any:
    """Return `value` with secrets hidden by field name, and with limits for texts, lists and
    depth. A URL loses credentials and path. An object `token` describes a token."""
    value = msgspec.to_builtins(value, enc_hook=str)
    is_secret = is_secret_name(name) or name in _HIDDEN_NAMES
    if value and is_secret and not (name == "token" and isinstance(value, dict)):
        return HIDDEN
    if isinstance(value, dict | list) and not depth:
        return {"omitted_bytes": len(_encode(value))}
    if isinstance(value, dict):
        pairs = list(value.items())[:ITEMS_MAX]
        return {key[:TEXT_LENGTH_MAX]: redact(item, key, depth - 1) for key, item in pairs}
    if isinstance(value, list):
        return [redact(item, "", depth - 1) for item in value[:ITEMS_MAX]]
    return without_path(value)[:TEXT_LENGTH_MAX] if isinstance(value, str) else value
