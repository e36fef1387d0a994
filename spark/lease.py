"""Holds the right to write below a folder, for one process at a time.

In a directory the right is a lock, which ends with its process. In HDFS it is a file that the name
node lets one process write. In object storage, a process holds the right as long as it rewrites its
object in time; Spark's commits do not exclude each other between drivers there. An object that
nobody wrote for LEASE_SECONDS, by the storage's clock, belongs to a killed process, and is taken
over. If two processes try, the storage accepts one.
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
    """Hold the right to write. Raises `busy` if another process has the right, and
    OutputNotWritable or OSError if the storage refuses."""
    there = as_object(folder)
    if there is None:
        return locked(folder, busy)
    return (FileLease if there.scheme == HDFS else ObjectLease)(there / ".lock", busy)


class Lease(AbstractContextManager["Lease"]):
    """A right that is held from construction until a `with` block ends. Raises `busy` if another
    process has the right, and OSError if the storage cannot be written."""

    def __init__(self, path: ObjectPath, busy: OutputBusy) -> None:
        self.path, self.busy = path, busy

    def __exit__(self, *_error: object) -> None:
        self.release()

    @abstractmethod
    def renew(self) -> None:
        """Renew the right. Raises `busy` if another process took the right over, or OSError."""

    @abstractmethod
    def release(self) -> None: ...


class FileLease(Lease):
    """An HDFS file, open for writing, which stays after its release."""

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
    """An object that is rewritten in time."""

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
        """Write new content each time, so that the tag changes too, and return the tag."""
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
