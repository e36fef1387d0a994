"""The right to write below a folder, for one process at a time.

In a directory it is a lock, which ends with its process. In HDFS it is a file that the name node
lets one process write. In object storage, a process holds it as long as it writes its object again
in time. Spark's commits in object storage
do not exclude each other between drivers; this does. An object that nobody wrote for LEASE_SECONDS,
by the clock of the storage, belongs to a process that was killed, and is taken over. The
storage accepts one of two that try.
"""

import json
import os
import socket
import threading
from abc import abstractmethod
from contextlib import AbstractContextManager, suppress
from typing import Any
from uuid import uuid4

from spark.errors import OutputBusy, StorageUnreachable
from spark.files import locked
from spark.locations import HDFS, Location, ObjectPath, as_object

LEASE_SECONDS = 60
RENEWAL_SECONDS = 15.0


def hold(folder: Location, busy: OutputBusy) -> "AbstractContextManager[Lease | None]":
    """Hold the right to write. Raises `busy` if another process holds it, and OutputNotWritable or
    OSError if it cannot be taken."""
    there = as_object(folder)
    if there is None:
        return locked(folder, busy)
    return (FileLease if there.scheme == HDFS else ObjectLease)(there / ".lock", busy)


class Lease(AbstractContextManager["Lease"]):
    """Held from its construction until the end of a `with` block. Raises `busy` if another process
    holds it, and OSError if the storage cannot be written."""

    def __init__(self, path: ObjectPath, busy: OutputBusy) -> None:
        self.path, self.busy = path, busy

    def __exit__(self, *_error: object) -> None:
        self.release()

    @abstractmethod
    def renew(self) -> None:
        """Raises `busy` if another process took it over, or OSError."""

    @abstractmethod
    def release(self) -> None: ...


class FileLease(Lease):
    """A file of HDFS, open to be written, which stays when it is released."""

    _file: Any = None

    def __init__(self, path: ObjectPath, busy: OutputBusy) -> None:
        super().__init__(path, busy)
        self.renew()

    def renew(self) -> None:
        try:
            with self.path.request() as (hdfs, there):
                if self._file is not None:
                    self._file.close()  # fails if another process has it, or had it
                self._file = hdfs.open_alone(there, self.path.key)
        except (FileExistsError, FileNotFoundError):
            raise self.busy from None

    def release(self) -> None:
        with suppress(OSError, StorageUnreachable):
            self._file.close()


class ObjectLease(Lease):
    """An object that is written again in time."""

    def __init__(self, path: ObjectPath, busy: OutputBusy) -> None:
        super().__init__(path, busy)
        self._name = {"host": socket.gethostname(), "process": os.getpid(), "id": uuid4().hex}
        self._renewals = 0
        self._tag = self._take()
        self._done, self._turn = threading.Event(), threading.Lock()
        self._renewer = threading.Thread(target=self._keep, daemon=True)
        self._renewer.start()

    def _take(self) -> str:
        try:
            return self._write("create")
        except FileExistsError:
            pass
        try:
            holder, tag, written = self.path.read_tagged()
            clock = self.path.with_name(f"{self.path.name}-clock")
            clock.write_bytes(b"")
            if clock.stat().st_ctime_ns / 1e9 - written > LEASE_SECONDS:
                return self._write({"e_tag": tag})
        except (FileExistsError, FileNotFoundError):  # another was faster, or it was released
            raise self.busy from None
        with suppress(ValueError, KeyError):
            self.busy.message += f" (on {json.loads(holder)['host']})"
        raise self.busy

    def _write(self, mode: Any) -> str:
        """Each time with another content, so that the tag is another one too."""
        self._renewals += 1
        return self.path.put(json.dumps({**self._name, "renewals": self._renewals}).encode(), mode)

    def renew(self) -> None:
        with self._turn:
            try:
                self._tag = self._write({"e_tag": self._tag})
            except FileExistsError:
                raise self.busy from None

    def _keep(self) -> None:
        while not self._done.wait(RENEWAL_SECONDS):
            with suppress(
                OSError, OutputBusy, StorageUnreachable
            ):  # the next attempt may still be in time
                self.renew()

    def release(self) -> None:
        self._done.set()
        self._renewer.join()
        with suppress(OSError, StorageUnreachable):
            if self.path.read_tagged()[1] == self._tag:
                self.path.unlink()
