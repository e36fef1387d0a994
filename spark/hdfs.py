"""HDFS by the functions of `obstore` that locations use. Needs no Java.

Hadoop's files in HADOOP_CONF_DIR configure it: several name nodes, Kerberos. A file is renamed when
it is complete. A killed process leaves a draft, which the next attempt replaces.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace
from typing import Any

from hdfs_native import Client, FileStatus, FileWriter, WriteOptions

ATTEMPTS_MAX = 3  # for each call; by default they take minutes


@cache
def client(host: str) -> Client:
    return Client(f"hdfs://{host}", {"dfs.client.failover.max.attempts": str(ATTEMPTS_MAX)})


def head(there: Client, key: str) -> dict[str, Any]:
    status = there.get_file_info(f"/{key}")
    if status.isdir:
        raise FileNotFoundError(key)
    return _entry(status)


def list(there: Client, prefix: str | None, **_chunk: int) -> Iterator[Any]:  # noqa: A001
    """Yield the files below a folder, each as a page."""
    with suppress(FileNotFoundError):
        for status in there.list_status(f"/{prefix or ''}", recursive=True):
            if not status.isdir:
                yield (_entry(status),)


def get(there: Client, key: str) -> Any:
    return SimpleNamespace(bytes=there.read(f"/{key}").read)


@contextmanager
def open_writer(there: Client, key: str) -> Iterator[FileWriter]:
    folder, _, name = key.rpartition("/")
    draft = f"{folder}/.{name}.part".strip("/")
    with there.create(f"/{draft}", WriteOptions(overwrite=True, create_parent=True)) as file:
        yield file
    rename(there, draft, key)


def rename(there: Client, key: str, target: str) -> None:
    there.rename(f"/{key}", f"/{target}", overwrite=True)


def delete(there: Client, key: str) -> None:
    there.delete(f"/{key}")


def open_alone(there: Client, key: str) -> FileWriter:
    """Return an empty file that only this process can open to write, until the process closes
    the file, or until a minute after a kill: the name node's lease. Raises FileExistsError
    meanwhile."""
    with suppress(FileExistsError):
        return there.create(f"/{key}", WriteOptions(overwrite=False, create_parent=True))
    return there.append(f"/{key}")


def _entry(status: FileStatus) -> dict[str, Any]:
    at = datetime.fromtimestamp(status.modification_time / 1000, UTC)
    return {"path": status.path.strip("/"), "size": status.length, "last_modified": at}
