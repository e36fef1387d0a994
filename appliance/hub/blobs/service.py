"""The operations of files: put, find, erase. Content is received and sent in pieces, in threads."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from appliance.busfile import blobs as files
from appliance.busfile.file import BusPaths
from appliance.hub.blobs import metrics, queries, wire, writes
from appliance.hub.blobs.settings import BlobSettings
from appliance.hub.service import Hub
from appliance.hub.wire import READ, SearchQuery
from appliance.kernel.auth import Principal
from appliance.kernel.errors import FileSystemReadOnly, Invalid, StorageFull
from appliance.kernel.lock import GreenletLock
from appliance.kernel.ownership import open_own
from appliance.kernel.store_errors import DISK_FULL_BYTES, free_bytes, is_read_only
from appliance.kernel.store_files import open_database
from appliance.kernel.threads import in_thread
from appliance.web.byterange import Download
from appliance.workspace.datadir import DataDir

BUS, BUS_READ = "bus", "bus:read"
ANONYMOUS = "anonymous"


class Body(NamedTuple):
    """A body to receive. `length`: in bytes; None: unknown, as in chunks. `expected`: the hash that
    the content must have; None: any."""

    read: Callable[[int], bytes]
    length: int | None
    media_type: str
    expected: str | None = None


class Blobs:
    """One per process. `is_backed_up`: whether a backup reads files now; then none is deleted."""

    def __init__(
        self, hub: Hub, datadir: DataDir, settings: BlobSettings, is_backed_up: Callable[[], bool]
    ) -> None:
        self.store, self.steady = hub.store, hub.steady
        self._hub = hub
        self._datadir = datadir
        self._settings = settings
        self._is_backed_up = is_backed_up
        self._folder = BusPaths(datadir.workspace).blobs
        self._lock = GreenletLock()
        """Held while a file is named or deleted, together with the row."""
        self._puts = 0

    def put(self, body: Body, principal: Principal) -> wire.BlobPut:
        """Receive a file and keep it. Raises BlobMismatch, BlobTooLarge, BlobQuota, TooManyPuts,
        StorageFull or Invalid; then nothing stays."""
        who = principal.label or ANONYMOUS
        self._check_size(body.length or 0)
        if body.expected is not None:  # otherwise it may be a file that this principal has put
            self._check_quota(who, body.expected, body.length or 0)
        with self._place(), self._writing():
            in_thread(self._check_space, body.length or 0)
            partial = in_thread(files.PartialBlob, self._folder)
            try:
                self._receive(body, partial)
                return self._keep(body, partial, who)
            finally:
                in_thread(partial.discard)

    def _receive(self, body: Body, partial: files.PartialBlob) -> None:
        while data := body.read(wire.CHUNK_BYTES):
            self._check_size(partial.size + len(data))
            in_thread(self._append, partial, data)
            metrics.put_bytes.inc(len(data))
        if body.length is not None and partial.size < body.length:
            raise Invalid("the body ended before its Content-Length")
        if body.expected not in (None, partial.digest):
            raise wire.BlobMismatch(details={"ref": wire.PREFIX + partial.digest})

    def _append(self, partial: files.PartialBlob, data: bytes) -> None:
        self._check_space(len(data))  # a full disk would stop the stores too
        partial.add(data)

    def _keep(self, body: Body, partial: files.PartialBlob, who: str) -> wire.BlobPut:
        digest, size = partial.digest, partial.size
        with self._lock:
            self._check_quota(who, digest, size)
            in_thread(partial.publish)
            created = self.store.write(writes.keep, digest, size, body.media_type, who)
        row = self.store.read(queries.find, digest)
        media_type = body.media_type if row is None else row.media_type
        blob = wire.Blob(wire.PREFIX + digest, size, media_type)
        return wire.BlobPut(blob, created, self._usage(who))

    def find(self, reference: str, principal: Principal) -> Download:
        """Return a file to send. Raises NoSuchBlob, also for one that the caller may not read, or
        BlobDamaged."""
        digest = _digest_in(reference)
        row = self.store.read(queries.find, digest)
        may_read = self._may_read if row is not None else self._may_read_payload
        if not may_read(digest, principal):
            raise wire.NoSuchBlob
        path = files.path_of(self._folder, digest)
        try:
            size = in_thread(os.stat, path).st_size
        except OSError:
            size = -1
        if size < 0 or (row is not None and size != row.size):
            raise wire.BlobDamaged(details={"ref": reference})
        media_type = wire.DEFAULT_MEDIA_TYPE if row is None else row.media_type
        return Download(size, digest, media_type, Content(path, digest, size).read)

    def _may_read_payload(self, digest: str, principal: Principal) -> bool:
        return principal.allows(BUS_READ) and in_thread(self._is_payload, digest)

    def _may_read(self, digest: str, principal: Principal) -> bool:
        """Return whether the caller reads all channels, has put the file, or may read a message
        that names the file."""
        if principal.channels_for(READ) is None:
            return True
        if self.store.read(queries.has_put, principal.label or ANONYMOUS, digest):
            return True
        query = SearchQuery(q=f'"{wire.PREFIX}{digest}"', limit=1)
        return bool(self._hub.search(query, principal).messages)

    def erase(self, reference: str) -> wire.BlobErased:
        """Remove a file now, although texts may name it. Raises NoSuchBlob, or BlobNamedByBus."""
        digest = _digest_in(reference)
        if in_thread(self._is_payload, digest):
            raise wire.BlobNamedByBus
        self.store.write(writes.erase, digest)
        self.delete_removed()
        return wire.BlobErased(reference)

    def _is_payload(self, digest: str) -> bool:
        path = self._datadir.database(BUS)
        if not path.exists():
            return False
        with closing(open_database(path, "ro")) as connection:
            sql = "SELECT 1 FROM messages WHERE payload_ref = ? LIMIT 1"
            return connection.execute(sql, (f"sha256-{digest}",)).fetchone() is not None

    def delete_removed(self) -> int:
        """Delete removed files' content, unless a backup reads; return how many. A backup that
        begins later does not name them any more."""
        deleted = 0
        for digest, removed_ms in self.store.read(queries.removed):
            if in_thread(self._is_backed_up):
                break
            with self._lock:
                if self.store.read(queries.is_removed, digest):
                    path = files.path_of(self._folder, digest)
                    in_thread(files.delete_older, path, removed_ms)
                    self.store.write(writes.forget, digest)
                    deleted += 1
        return deleted

    def measure(self) -> None:
        """Set the gauges."""
        files_, size, removed = self.store.read(queries.totals)
        metrics.count.set(files_)
        metrics.size.set(size)
        metrics.waiting.set(removed)

    # -- limits ----------------------------------------------------------------------------

    def _usage(self, who: str) -> wire.BlobUsage:
        count, size = self.store.read(queries.usage, who)
        return wire.BlobUsage(count, wire.FILES_MAX, size, self._settings.quota_bytes)

    def _check_size(self, size: int) -> None:
        limit = self._settings.file_bytes_max
        if size > limit:
            raise wire.BlobTooLarge(
                f"the file has more than {limit:,} bytes", details={"bytes_max": limit}
            )

    def _check_quota(self, who: str, digest: str, size: int) -> None:
        """Raise BlobQuota if another file does not fit. A file that this principal has put before
        costs nothing."""
        if self.store.read(queries.has_put, who, digest):
            return
        used = self._usage(who)
        if used.files >= used.files_max or used.bytes + size > used.bytes_max:
            metrics.refused.labels("quota").inc()
            raise wire.BlobQuota(
                f"the token's files would exceed {used.bytes_max:,} bytes or {used.files_max:,}"
                " files",
                details={"bytes": used.bytes, "bytes_max": used.bytes_max, "files": used.files,
                         "files_max": used.files_max},
            )  # fmt: skip
        if self.store.read(queries.count) >= wire.ALL_FILES_MAX:
            raise wire.BlobQuota(f"the appliance keeps {wire.ALL_FILES_MAX:,} files already")

    def _check_space(self, size: int) -> None:
        if is_read_only(self._datadir.dir):
            raise FileSystemReadOnly
        if free_bytes(self._datadir.dir) < size + DISK_FULL_BYTES:
            raise StorageFull

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._puts >= wire.PUTS_MAX:
            metrics.refused.labels("busy").inc()
            raise wire.TooManyPuts(details={"limit": wire.PUTS_MAX})
        self._puts += 1
        try:
            yield
        finally:
            self._puts -= 1

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Report a failed write, as on a full disk."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFull from error
            raise wire.BlobNotWritable(
                f"the file can't be written: {error.strerror or error}"
            ) from error


def _digest_in(reference: str) -> str:
    """Return a path's hash. Raises NoSuchBlob, also for another text."""
    digest = wire.find_digest(reference)
    if digest is None:
        raise wire.NoSuchBlob
    return digest


class Content(NamedTuple):
    """A file's bytes. A whole file's hash is checked before its last piece is sent, so a damaged
    file never arrives whole."""

    path: Path
    digest: str
    size: int

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield a range in pieces. Raises BlobDamaged or OSError, which end the connection."""
        whole = hashlib.sha256() if (start, stop) == (0, self.size) else None
        with os.fdopen(in_thread(open_own, self.path, os.O_RDONLY), "rb") as file:
            file.seek(start)
            while data := in_thread(file.read, min(wire.CHUNK_BYTES, stop - start)):
                start += len(data)
                if whole is not None:
                    in_thread(whole.update, data)
                    if start == stop and whole.hexdigest() != self.digest:
                        raise wire.BlobDamaged
                yield data
        if start < stop:
            raise wire.BlobDamaged
