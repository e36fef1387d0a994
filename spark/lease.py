"""The right to write below a folder, for one process at a time.

In a directory it is a lock, which ends with its process. In object storage, a process holds it as
long as it writes its object again in time. Spark's commits in object storage
do not exclude each other between drivers; this does. An object that nobody wrote for LEASE_SECONDS,
by the clock of the storage, belongs to a process that was killed, and is taken over. The
storage accepts one of two that try.
"""

import json
import os
import socket
import threading
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from spark.errors import OutputBusy
from spark.files import locked
from spark.locations import Location, ObjectPath, as_object

LEASE_SECONDS = 60
RENEWAL_SECONDS = 15.0


def hold(folder: Location, busy: OutputBusy) -> "AbstractContextManager[Lease | None]":
    """Hold the right to write. Raises `busy` if another process holds it, and OutputNotWritable or
    OSError if it cannot be taken."""
    there = as_object(folder)
    return locked(folder, busy) if there is None else Lease(there / ".lock", busy)


class Lease:
    """Held from its construction until the end of a `with` block, if it is renewed in time. Raises
    `busy` if another process holds it, and OSError if the storage cannot be written."""

    def __init__(self, path: ObjectPath, busy: OutputBusy) -> None:
        self.path, self.busy = path, busy
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:  # fmt: skip
        self.release()

    def renew(self) -> None:
        """Raises `busy` if another process took it over, or OSError."""
        with self._turn:
            try:
                self._tag = self._write({"e_tag": self._tag})
            except FileExistsError:
                raise self.busy from None

    def _keep(self) -> None:
        while not self._done.wait(RENEWAL_SECONDS):
            with suppress(OSError, OutputBusy):  # the next attempt may still be in time
                self.renew()

    def release(self) -> None:
        self._done.set()
        self._renewer.join()
        with suppress(OSError):
            if self.path.read_tagged()[1] == self._tag:
                self.path.unlink()
