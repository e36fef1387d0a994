"""Results of a linkifier that another program computed: the file is verified, and read in batches.

NAME.jsonl          a header, then one change per line
NAME.manifest.json  bytes, hash and number of rows
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from appliance.hub.plugins import wire
from appliance.kernel.errors import Invalid

SCHEMA = "enrichment-changes-1"
BATCH_BYTES_MAX = 384 * 1024  # in one request, below BODY_BYTES_MAX of web/app.py
LINE_BYTES_MAX = BATCH_BYTES_MAX
MANIFEST_BYTES_MAX = 1024 * 1024
HINT = "make the file and its manifest again, or copy both again: docs/how-to/plugins.md"


class ChangeHeader(msgspec.Struct, frozen=True):
    """The first line: the plugin that made the changes, and the end of its input."""

    schema: str
    plugin: wire.PluginName
    plugin_version: str
    epoch: str
    as_of_event_id: int


class ChangeManifest(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str
    rows: Annotated[int, Meta(ge=0)]


class ChangeFile:
    """A verified file. Raises Invalid for one that is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        named = path.with_name(f"{path.name.removesuffix('.jsonl')}.manifest.json")
        self.manifest: ChangeManifest = _decode(
            _read(named, MANIFEST_BYTES_MAX), ChangeManifest, named
        )
        size, digest = _extent(path)
        if (size, digest) != (self.manifest.bytes, self.manifest.sha256):
            raise Invalid(f"{path.name} differs from its manifest", hint=HINT)
        with path.open("rb") as file:
            self.header: ChangeHeader = _decode(file.readline(LINE_BYTES_MAX), ChangeHeader, path)
        if self.header.schema != SCHEMA:
            raise Invalid(f"{path.name} has schema {self.header.schema!r}, not {SCHEMA}", hint=HINT)

    def batches(self) -> Iterator[list[wire.EnrichmentChange]]:
        """The changes, as many as fit into a request."""
        batch: list[wire.EnrichmentChange] = []
        size = 0
        with self.path.open("rb") as file:
            file.readline(LINE_BYTES_MAX)
            for _ in range(self.manifest.rows):
                line = file.readline(LINE_BYTES_MAX)
                if batch and (len(batch) == wire.CHANGES_MAX or size + len(line) > BATCH_BYTES_MAX):
                    yield batch
                    batch, size = [], 0
                batch.append(_decode(line, wire.EnrichmentChange, self.path))
                size += len(line)
        if batch:
            yield batch


def _extent(path: Path) -> tuple[int, str]:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return file.tell(), digest
    except OSError as error:
        raise Invalid(f"{path} can't be read: {error.strerror}", hint=HINT) from None


def _read(path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(bytes_max)
    except OSError as error:
        raise Invalid(f"{path} can't be read: {error.strerror}", hint=HINT) from None


def _decode(data: bytes, kind: Any, path: Path) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise Invalid(f"{path.name} is truncated or malformed", hint=HINT) from None
