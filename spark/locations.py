"""Reads and writes locations by URL: local files and folders, object storage or HDFS. Needs no
Spark.

A local location is a `pathlib.Path`. Other locations have the `Path` methods that jobs use, and
their text is the URL that the engine reads. Keys come from files or from the environment, and are
never part of a URL, an argument or an error.
"""

from __future__ import annotations

import io
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from errno import EIO, ENOENT
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from spark.errors import StorageUnreachable

SCHEME, HDFS = "s3a", "hdfs"
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
VARIABLES = (
    "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ALLOW_HTTP", *(f"{key}_FILE" for key in KEYS),
    "HADOOP_CONF_DIR", "HADOOP_USER_NAME",
)  # fmt: skip
"""Variables that executor processes need too; no secret is among them."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# As the libraries in Rust and in Java write them.
STATUS = re.compile(r"(?i)status code\W+(?:31m\W+0m\s)?(\d{3})\b")
CODE = re.compile(r"<Code>([A-Za-z]{1,40})</Code>")
REFUSED = re.compile(r"Generic S3 error|NoSuchBucket|Service: S3, Status Code: (?!404)\d")
HINTS = {
    "ExpiredToken": "renew the keys, and run it again: it continues from the last version",
    "NoSuchBucket": "create the bucket, or correct the URL: docs/how-to/spark.md",
    "503": "wait until the storage answers, and run it again",
}
REGION = "us-east-1"  # what servers without regions expect
RETRIES_MAX = 3
REQUEST_SECONDS_MAX, CONNECT_SECONDS_MAX = 120, 10


class ObjectStat(NamedTuple):
    """An object's status, with `os.stat` names."""

    st_size: int
    st_ctime_ns: int


@dataclass(frozen=True, order=True)
class ObjectPath:
    """A file or folder in a bucket, or in a name node's file system, where a key is the path
    without its first "/". OSError is raised as `Path` does."""

    scheme: str
    bucket: str
    key: str = ""
    known: ObjectStat | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/")

    def __truediv__(self, name: str) -> ObjectPath:
        return self._of(f"{self.key}/{name}".strip("/"))

    def _of(self, key: str, known: ObjectStat | None = None) -> ObjectPath:
        return ObjectPath(self.scheme, self.bucket, key, known)

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.key).stem

    @property
    def parent(self) -> ObjectPath:
        return self._of(self.key.rpartition("/")[0])

    def with_name(self, name: str) -> ObjectPath:
        return self.parent / name

    def relative_to(self, folder: ObjectPath) -> PurePosixPath:
        return PurePosixPath(self.key).relative_to(folder.key)

    def resolve(self) -> ObjectPath:
        return self

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return whether a file is below this folder."""
        return next(self._list(chunk=1), None) is not None

    def stat(self) -> ObjectStat:
        if self.known is not None:
            return self.known
        with self.request() as (storage, store):
            return _stat(storage.head(store, self.key))

    def rglob(self, pattern: str) -> Iterator[ObjectPath]:
        return (path for path in self._list() if fnmatchcase(path.name, pattern))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield files, and folders without file attributes."""
        parts, folders = pattern.split("/"), set()
        for path in self._list():
            names = str(path.relative_to(self)).split("/")
            matches = all(map(fnmatchcase, names, parts)) and len(names) >= len(parts)
            entry = path if len(names) == len(parts) else self / "/".join(names[: len(parts)])
            if matches and entry not in folders:
                folders.add(entry)
                yield entry

    def read_bytes(self) -> bytes:
        with self.request() as (storage, store):
            return bytes(storage.get(store, self.key).bytes())

    def open(self, mode: str = "rb") -> Any:
        """Open a file to read, or to write as a whole: an error in the block leaves no object."""
        if mode == "rb":
            return io.BytesIO(self.read_bytes())
        with self.request() as (storage, store):
            return storage.open_writer(store, self.key)

    def write_bytes(self, content: bytes) -> None:
        with self.request() as (storage, store), storage.open_writer(store, self.key) as file:
            file.write(content)

    def put(self, content: bytes, mode: Any) -> str:
        """Write an object as a whole, if `mode` holds: "create", or the expected `e_tag`. Return
        the new tag. Raises FileExistsError otherwise."""
        with self.request() as (storage, store):
            put = storage.put(store, self.key, content, mode=mode, use_multipart=False)
            return str(put["e_tag"])

    def read_tagged(self) -> tuple[bytes, str, int]:
        """Return the content, its tag, and the server time at which it was written, in seconds."""
        with self.request() as (storage, store):
            got = storage.get(store, self.key)
            meta = got.meta
            return bytes(got.bytes()), str(meta["e_tag"]), int(meta["last_modified"].timestamp())

    def unlink(self, missing_ok: bool = False) -> None:
        with self.request() as (storage, store):
            storage.delete(store, self.key)

    def replace(self, target: ObjectPath) -> ObjectPath:
        with self.request() as (storage, store):
            storage.rename(store, self.key, target.key)
        return target

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: object storage needs no folders."""

    def _list(self, chunk: int = 1000) -> Iterator[ObjectPath]:
        with self.request() as (storage, store):
            for page in storage.list(store, prefix=self.key or None, chunk_size=chunk):
                for entry in page:
                    if entry["path"] != self.key:  # an object that stands for the folder
                        yield self._of(entry["path"], _stat(entry))

    @contextmanager
    def request(self) -> Iterator[tuple[Any, Any]]:
        """Yield the library and the bucket. A file that is missing, or exists already, is an
        OSError; all other errors are StorageUnreachable, without the server's words."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        chosen = sorted(options().items())
        try:
            if self.scheme == HDFS:
                from spark import hdfs

                yield hdfs, hdfs.client(self.bucket)
            else:
                yield obstore, _store(self.bucket, *chosen)
        except FileNotFoundError as error:
            if REFUSED.search(str(error)):
                raise refusal(str(self), str(error)) from None
            raise FileNotFoundError(ENOENT, "does not exist", str(self)) from None
        except (AlreadyExistsError, FileExistsError, PreconditionError):
            raise FileExistsError(EIO, "was written by another process", str(self)) from None
        except (BaseError, OSError, ValueError) as error:
            raise refusal(str(self), str(error)) from None


Location: TypeAlias = Path
"""A `Path`, or an ObjectPath, which has the `Path` methods that jobs use."""


def location(text: str) -> Location:
    """Return an argument's location: a path, or a URL with `file:`, `s3a:` or `hdfs:`. Other
    schemes are refused, because such a path would be a local directory."""
    if not URL.match(text):
        return Path(text)
    parts = urlsplit(text)
    if parts.username is not None:
        raise ArgumentTypeError("a URL must not contain a key: use files or the environment")
    if parts.scheme in (SCHEME, HDFS) and parts.netloc:
        key = unquote(parts.path).strip("/")
        return cast(Location, ObjectPath(parts.scheme, parts.netloc, key))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ArgumentTypeError(
            f"{text} is not supported: use a directory, file:/DIR, s3a://BUCKET/… or hdfs://HOST/…"
        )
    return Path(unquote(parts.path))


def as_object(path: Any) -> ObjectPath | None:
    """Return the location, if it is in object storage or HDFS."""
    return path if isinstance(path, ObjectPath) else None


def options() -> dict[str, str]:
    """Return how Python libraries reach object storage. Without key files, libraries find keys
    in the environment or from the machine they run on."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or REGION
    chosen = {
        "aws_region": region,
        "aws_virtual_hosted_style_request": "false" if endpoint else "true",
        **{name.lower(): key for name, key in keys().items()},
    }
    if endpoint:
        host = urlsplit(endpoint).hostname
        plain = host in LOOPBACK or os.environ.get("AWS_ALLOW_HTTP") == "true"
        chosen |= {"aws_endpoint": endpoint, "aws_allow_http": "true" if plain else "false"}
    return chosen


def keys() -> dict[str, str]:
    """Return the keys in the files that AWS_ACCESS_KEY_ID_FILE and AWS_SECRET_ACCESS_KEY_FILE
    name, by the variables that libraries read. Raises StorageUnreachable."""
    files = {name: os.environ.get(f"{name}_FILE") for name in KEYS}
    chosen = {name: file for name, file in files.items() if file}
    try:
        return {name: Path(file).read_text("utf-8-sig").strip() for name, file in chosen.items()}
    except (OSError, UnicodeDecodeError) as error:
        sentence = f"the key files {' and '.join(chosen.values())} can't be read: {error}"
        raise StorageUnreachable(sentence, f"correct {'_FILE or '.join(chosen)}_FILE") from None


@cache
def _store(bucket: str, *chosen_options: tuple[str, str]) -> Any:
    from obstore.store import S3Store

    chosen = dict(chosen_options)
    plain = chosen.pop("aws_allow_http", "false") == "true"
    return S3Store(
        bucket,
        config=cast(Any, chosen),
        client_options={
            "allow_http": plain,
            "timeout": timedelta(seconds=REQUEST_SECONDS_MAX),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS_MAX),
        },
        retry_config={
            "max_retries": RETRIES_MAX,
            "retry_timeout": timedelta(seconds=REQUEST_SECONDS_MAX),
        },
    )


def _stat(entry: Any) -> ObjectStat:
    return ObjectStat(entry["size"], int(entry["last_modified"].timestamp() * 1e9))


def refusal(where: str, text: str) -> StorageUnreachable:
    """Return the error for a library's text, with a hint about the cause."""
    reason = _reason(text)
    hint = next((hint for words, hint in HINTS.items() if words in reason), None)
    return StorageUnreachable(f"{where}: {reason}", hint)


def _reason(text: str) -> str:
    """Return what an object storage error means, without addresses and the server's words."""
    status, code = STATUS.search(text), CODE.search(text)
    if "BadScheme" in text:
        return "the address is not encrypted: use https:, or set AWS_ALLOW_HTTP=true"
    if status is None:
        return "the object storage can't be reached, or has no keys"
    name = code[1] if code else "ExpiredToken" if "token has expired" in text else ""
    return f"the object storage answered {status[1]} {name}".strip()
