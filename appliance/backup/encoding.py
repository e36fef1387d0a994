"""Compresses and encrypts the files of a backup, and reads them again, in chunks of constant size.

    encode: content ─ zstd ─ age, with recipients ─▶ file in the backup
    decode: file in the backup ─ age, with identities ─ zstd ─▶ content

The formats are those of the programs `zstd` and `age`. Both directions hash both sides.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from appliance.backup.errors import BackupLibraryMissing, KeyRefused

CHUNK_BYTES = 1024 * 1024
LEVEL = 3  # of zstd: a higher level is slower by far, and hardly smaller
NO_MATCH = "No matching keys found"
Tell = Callable[[int], None]
"""Called with the number of bytes of the content since its last call."""


class Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Sink(Protocol):
    def write(self, data: bytes, /) -> Any: ...


class Encoded(NamedTuple):
    """Sizes in bytes and SHA-256 of the content, and of the file in the backup."""

    bytes: int
    sha256: str
    stored_bytes: int
    stored_sha256: str


class Undecodable(Exception):
    """The stored bytes are not what `encode` wrote; the text says how."""


def encode(
    source: Source,
    target: Sink,
    *,
    recipients: Sequence[Any] = (),
) -> Encoded:
    """Writes all of `source` to `target`, compressed, and encrypted if there are `recipients`.

    Raises the errors of `source` and `target`, and BackupLibraryMissing.
    """
    content = _Passed()
    compressed = _Compressed(source, content)
    stored = _Stored(target)
    if recipients:
        _piped(lambda: age().encrypt_io(compressed, stored, recipients), compressed, stored)
    else:
        while chunk := compressed.read(CHUNK_BYTES):
            stored.write(chunk)
    return Encoded(content.bytes, content.sha256, stored.bytes, stored.sha256)


def decode(
    source: Source,
    target: Sink,
    *,
    bytes_max: int,
    identities: Sequence[Any] | None = None,
    tell: Tell | None = None,
) -> Encoded:
    """The other direction; without `identities` for files that are not encrypted.

    At most `bytes_max` bytes are written. Raises Undecodable, KeyRefused before anything is
    written, the errors of `source` and `target`, and BackupLibraryMissing.
    """
    stored = _Reading(source)
    content = _Content(target, bytes_max, tell)
    if identities is None:
        while chunk := stored.read(CHUNK_BYTES):
            content.write(chunk)
    else:
        try:
            _piped(lambda: age().decrypt_io(stored, content, identities), stored, content)
        except age().DecryptError as error:
            if str(error) == NO_MATCH:
                raise KeyRefused from None
            raise Undecodable(f"it can't be decrypted: {error}") from None
    content.end()
    stored.drain()
    return Encoded(content.bytes, content.sha256, stored.bytes, stored.sha256)


def zstd() -> Any:
    """The module for zstd. Raises BackupLibraryMissing."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return import_module(name)
    raise BackupLibraryMissing("zstd is not installed; backups are compressed with it")


def age() -> Any:
    """The module for age. Raises BackupLibraryMissing."""
    try:
        return import_module("pyrage")
    except ImportError:
        raise BackupLibraryMissing("pyrage is not installed; it encrypts backups") from None


def _piped(work: Callable[[], None], *ends: "_End") -> None:
    """`work` reports errors of our own streams as its own; this raises the original ones."""
    try:
        work()
    except Exception as error:
        for end in ends:
            if end.error is not None:
                raise end.error from None
        if isinstance(error, OSError):  # damage within the encrypted data
            raise Undecodable(f"it can't be decrypted: {error}") from None
        raise


class _End:
    """One end of the stream. `error`: what was raised in it. After that it is not used again,
    although pyrage may try to write what it has buffered."""

    error: Exception | None = None

    @contextmanager
    def _keep(self) -> Iterator[None]:
        if self.error is not None:
            raise self.error
        try:
            yield
        except Exception as error:
            self.error = error
            raise


class _Passed:
    """Size and hash of what passes."""

    def __init__(self, tell: Tell | None = None) -> None:
        self.bytes = 0
        self._hash = hashlib.sha256()
        self._tell = tell

    def add(self, data: bytes) -> None:
        self.bytes += len(data)
        self._hash.update(data)
        if self._tell is not None:
            self._tell(len(data))

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


class _Compressed(_End):
    """Reads the source and gives it out compressed."""

    def __init__(self, source: Source, content: _Passed) -> None:
        self._source = source
        self._content = content
        self._compressor = zstd().ZstdCompressor(level=LEVEL)
        self._waiting = bytearray()
        self._ended = False

    def read(self, size: int = -1, /) -> bytes:
        with self._keep():
            while not self._waiting and not self._ended:
                self._fill()
        end = len(self._waiting) if size < 0 else size
        taken = bytes(self._waiting[:end])
        del self._waiting[:end]
        return taken

    def _fill(self) -> None:
        chunk = self._source.read(CHUNK_BYTES)
        self._content.add(chunk)
        if chunk:
            self._waiting += self._compressor.compress(chunk)
        else:
            self._waiting += self._compressor.flush()
            self._ended = True


class _Stored(_Passed, _End):
    """Writes to the file in the backup."""

    def __init__(self, target: Sink) -> None:
        super().__init__()
        self._target = target

    def write(self, data: bytes, /) -> int:
        with self._keep():
            self._target.write(data)
        self.add(data)
        return len(data)

    def flush(self) -> None:
        """Required of a file; the caller syncs."""


class _Reading(_Passed, _End):
    """Reads the file in the backup."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source

    def read(self, size: int = -1, /) -> bytes:
        with self._keep():
            chunk = self._source.read(CHUNK_BYTES if size < 0 else min(size, CHUNK_BYTES))
        self.add(chunk)
        return chunk

    def drain(self) -> None:
        """Measures what is left."""
        while self.read(CHUNK_BYTES):
            pass


class _Content(_Passed, _End):
    """Decompresses what is written to it, in pieces of a limited size."""

    def __init__(self, target: Sink, bytes_max: int, tell: Tell | None) -> None:
        super().__init__(tell)
        self._target = target
        self._bytes_max = bytes_max
        self._module = zstd()
        self._decompressor = self._module.ZstdDecompressor()

    def write(self, data: bytes, /) -> int:
        with self._keep():
            self._write(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Required of a file; the caller syncs."""

    def end(self) -> None:
        if not self._decompressor.eof:
            raise Undecodable("it ends too early")

    def _write(self, data: bytes) -> None:
        while data or not self._decompressor.needs_input:
            if self._decompressor.eof:
                raise Undecodable("it has bytes behind its end")
            try:
                chunk = self._decompressor.decompress(data, CHUNK_BYTES)
            except self._module.ZstdError as error:
                raise Undecodable(f"it can't be decompressed: {error}") from None
            data = self._decompressor.unused_data if self._decompressor.eof else b""
            if self.bytes + len(chunk) > self._bytes_max:
                raise Undecodable(f"it contains more than {self._bytes_max:,} bytes")
            self._target.write(chunk)
            self.add(chunk)
            if self._decompressor.eof and not data:
                return
