"""Compresses and encrypts backup files, and reads them again, in chunks with constant size.

    encode: content ─ zstd ─ age, with recipients ─▶ file in the backup
    decode: file in the backup ─ age, with identities ─ zstd ─▶ content

The programs `zstd` and `age` use identical formats.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from appliance.backup.errors import BackupLibraryMissing, KeyRefused

CHUNK_BYTES = 1024 * 1024
LEVEL = 3  # zstd level: a higher one is slower by far, and hardly smaller
NO_MATCH = "No matching keys found"
ByteProgress = Callable[[int, int], None]
"""Called with the finished bytes and the content's total bytes."""


class Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Sink(Protocol):
    def write(self, data: bytes, /) -> Any: ...


class Encoded(NamedTuple):
    """Byte sizes and SHA-256 for the content, and for the file in the backup."""

    bytes: int
    sha256: str
    stored_bytes: int
    stored_sha256: str


class Undecodable(Exception):
    """Stored bytes that `encode` did not write; the text describes the difference."""


def encode(source: Source, target: Sink, *, recipients: Sequence[Any] = ()) -> Encoded:
    """Write all bytes from `source` to `target`, compressed, and encrypted if there are
    `recipients`.

    Raises the errors of `source` and `target`, and BackupLibraryMissing.
    """
    content, stored = _Passed(), _Stored(target)
    compressed = _compress(source, content)
    if recipients:
        reader = _Reader(compressed)
        _pipe(lambda: age().encrypt_io(reader, stored, recipients), reader, stored)
    else:
        for chunk in compressed:
            stored.write(chunk)
    return Encoded(content.bytes, content.sha256, stored.bytes, stored.sha256)


def decode(
    stored: Iterator[bytes],
    target: Sink,
    *,
    bytes_max: int,
    identities: Sequence[Any] | None = None,
    progress: ByteProgress = lambda *_: None,
) -> tuple[int, str]:
    """Decode all bytes from `stored`; without `identities` for unencrypted files. Return the
    content's size and SHA-256.

    At most `bytes_max` bytes are written. Raises Undecodable, KeyRefused before anything is
    written, the errors of `stored` and `target`, and BackupLibraryMissing.
    """
    content = _Content(target, bytes_max, progress)
    if identities is None:
        for chunk in stored:
            content.write(chunk)
    else:
        reader = _Reader(stored)
        try:
            _pipe(lambda: age().decrypt_io(reader, content, identities), reader, content)
        except age().DecryptError as error:
            if str(error) == NO_MATCH:
                raise KeyRefused from None
            raise Undecodable(f"it can't be decrypted: {error}") from None
    content.end()
    for _ in stored:  # it may check the end
        pass
    return content.bytes, content.sha256


def zstd() -> Any:
    """Return the zstd module. Raises BackupLibraryMissing."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return import_module(name)
    raise BackupLibraryMissing("zstd is not installed; backups are compressed with it")


def age() -> Any:
    """Return the age module. Raises BackupLibraryMissing."""
    try:
        return import_module("pyrage")
    except ImportError:
        raise BackupLibraryMissing("pyrage is not installed; it encrypts backups") from None


def _pipe(work: Callable[[], None], *ends: "_End") -> None:
    """Run `work`, which wraps our own streams' errors, and raise the original errors."""
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
    """One stream end. `error`: the exception raised in the stream. Afterwards the stream is not
    used again, although pyrage may try to write buffered bytes."""

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
    """A counter for the size and hash of passing bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self._hash = hashlib.sha256()

    def add(self, data: bytes) -> None:
        self.bytes += len(data)
        self._hash.update(data)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def _compress(source: Source, content: _Passed) -> Iterator[bytes]:
    compressor = zstd().ZstdCompressor(level=LEVEL)
    while chunk := source.read(CHUNK_BYTES):
        content.add(chunk)
        yield compressor.compress(chunk)
    yield compressor.flush()


class _Reader(_End):
    """A reader that reads chunks as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._waiting = memoryview(b"")

    def read(self, size: int = -1, /) -> bytes:
        with self._keep():
            while not self._waiting and (chunk := next(self._chunks, None)) is not None:
                self._waiting = memoryview(chunk)
        end = len(self._waiting) if size < 0 else size
        taken, self._waiting = bytes(self._waiting[:end]), self._waiting[end:]
        return taken


class _Stored(_Passed, _End):
    """A writer for the file in the backup."""

    def __init__(self, target: Sink) -> None:
        super().__init__()
        self._target = target

    def write(self, data: bytes, /) -> int:
        with self._keep():
            self._target.write(data)
        self.add(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing, because a file must have this method; the caller syncs."""


class _Content(_Passed, _End):
    """A writer that decompresses the received bytes in pieces with limited size."""

    def __init__(self, target: Sink, bytes_max: int, progress: ByteProgress) -> None:
        super().__init__()
        self._target = target
        self._bytes_max = bytes_max
        self._progress = progress
        self._module = zstd()
        self._decompressor = self._module.ZstdDecompressor()

    def write(self, data: bytes, /) -> int:
        with self._keep():
            self._write(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing, because a file must have this method; the caller syncs."""

    def end(self) -> None:
        if not self._decompressor.eof:
            raise Undecodable("it ends too early")

    def _write(self, data: bytes) -> None:
        while data or not self._decompressor.needs_input:
            if self._decompressor.eof:
                raise Undecodable("bytes follow the end mark")
            try:
                chunk = self._decompressor.decompress(data, CHUNK_BYTES)
            except self._module.ZstdError as error:
                raise Undecodable(f"it can't be decompressed: {error}") from None
            data = self._decompressor.unused_data if self._decompressor.eof else b""
            if self.bytes + len(chunk) > self._bytes_max:
                raise Undecodable(f"it contains more than {self._bytes_max:,} bytes")
            self._target.write(chunk)
            self.add(chunk)
            self._progress(self.bytes, self._bytes_max)
            if self._decompressor.eof and not data:
                return
