"""The file of changes that the Spark job `reenrich` writes: verified, and read in batches.

NAME.jsonl           a header, then one change per line
NAME.manifest.json   bytes, hash and number of rows
.NAME.jsonl.applied  how far it was applied, while that is unfinished
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
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
HINT = "run the job reenrich again, and copy the file and its manifest"


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


class _AppliedRows(msgspec.Struct, frozen=True):
    sha256: str
    rows: int


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
        self._progress = path.with_name(f".{path.name}.applied")

    def batches(self, after: int) -> Iterator[list[wire.EnrichmentChange]]:
        """The changes after the first `after` ones, as many as fit into a request."""
        batch: list[wire.EnrichmentChange] = []
        size = 0
        with self.path.open("rb") as file:
            file.readline(LINE_BYTES_MAX)
            for number in range(self.manifest.rows):
                line = file.readline(LINE_BYTES_MAX)
                if number < after:
                    continue
                if batch and (len(batch) == wire.CHANGES_MAX or size + len(line) > BATCH_BYTES_MAX):
                    yield batch
                    batch, size = [], 0
                batch.append(_decode(line, wire.EnrichmentChange, self.path))
                size += len(line)
        if batch:
            yield batch

    def applied(self) -> int:
        """The number of changes that an interrupted run has applied."""
        with suppress(OSError, msgspec.DecodeError):
            progress = msgspec.json.decode(self._progress.read_bytes(), type=_AppliedRows)
            if progress.sha256 == self.manifest.sha256:
                return min(progress.rows, self.manifest.rows)
        return 0

    def remember(self, rows: int) -> None:
        """Store how far the file was applied. Without it, changes are sent again, without
        effect, so a directory that can't be written is accepted."""
        with suppress(OSError):
            if rows >= self.manifest.rows:
                self._progress.unlink(missing_ok=True)
                return
            draft = self._progress.with_name(f"{self._progress.name}.part")
            draft.write_bytes(msgspec.json.encode(_AppliedRows(self.manifest.sha256, rows)))
            draft.replace(self._progress)


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
