"""Defines the requests, responses, errors and limits of files that agents put."""

import re
from typing import Annotated

from msgspec import Meta, Struct

from appliance.kernel.errors import Conflict, Exhausted, Invalid, Missing, Unavailable

FILES_MAX = 10_000  # that one token has put: its usage is counted with every put
ALL_FILES_MAX = 100_000  # a backup's manifest names each one
PUTS_MAX = 16  # received at once; each has a thread while a piece is written
CHUNK_BYTES = 64 * 1024
TEXT_BYTES_MAX = 64 * 1024  # that a tool puts or reads
PREFIX = "sha256:"
_is_digest = re.compile(r"[0-9a-f]{64}").fullmatch
_WORD = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,80}"
_is_media_type = re.compile(rf"{_WORD}/{_WORD}(; ?charset=[A-Za-z0-9._-]{{1,40}})?").fullmatch
DEFAULT_MEDIA_TYPE = "application/octet-stream"

BlobReference = Annotated[
    str, Meta(min_length=71, max_length=71, description="`sha256:` and 64 hexadecimal digits")
]


class Blob(Struct, frozen=True):
    """A file. `ref` is what texts name it by; `size` is in bytes."""

    ref: str
    size: int
    media_type: str


class BlobUsage(Struct, frozen=True):
    """The files that the caller has put: what they use, and the limits."""

    files: int
    files_max: int
    bytes: int
    bytes_max: int


class BlobPut(Struct, frozen=True):
    """`created`: false if the content was there before."""

    blob: Blob
    created: bool
    usage: BlobUsage


class BlobErased(Struct, frozen=True):
    ref: str
    erased: bool = True


class NoSuchBlob(Missing):
    code = "BLOB_NOT_FOUND"
    default_message = "no such file: never put, removed, or not readable with this token"
    default_hint = "ask the sender to put the file again: agentlip put FILE"


class BlobMismatch(Invalid):
    code = "BLOB_MISMATCH"
    default_message = "the body has another hash than the path"
    default_hint = "compare with 'sha256sum FILE', or send POST /api/v1/blobs"


class BlobTooLarge(Invalid):
    code = "BLOB_TOO_LARGE"
    default_message = "the file is too large"
    default_hint = "raise blobs.file_bytes_max in agentlip.toml, or split the file"


class BlobQuota(Exhausted):
    code = "BLOB_QUOTA"
    status = 507
    default_message = "the token's files use the whole quota"
    default_hint = (
        "files that nothing names go after blobs.retention_days; or raise blobs.quota_bytes in"
        " agentlip.toml"
    )


class TooManyPuts(Unavailable):
    default_message = "too many files are being put at once"


class BlobNotWritable(Unavailable):
    code = "BLOB_NOT_WRITABLE"
    default_message = "the file can't be written"
    default_hint = "check owner and mode: ls -ld .worker-state .worker-state/blobs"


class BlobDamaged(Unavailable):
    code = "BLOB_DAMAGED"
    default_message = "the file's content is missing or damaged"
    default_hint = "put the file again, or restore a backup: agentlip doctor --run blobs --all"


class BlobNamedByBus(Conflict):
    code = "BLOB_NAMED_BY_BUS"
    default_message = "a worker bus message has this content as its payload"
    default_hint = "agentlip bus archive --blobs deletes the payload after the message"


def find_digest(reference: str) -> str | None:
    """Return a reference's 64 hexadecimal digits; None for another text."""
    digest = reference.removeprefix(PREFIX)
    return digest if reference.startswith(PREFIX) and _is_digest(digest) else None


def digest_of(reference: str) -> str:
    """Return a reference's 64 hexadecimal digits. Raises Invalid."""
    digest = find_digest(reference)
    if digest is None:
        raise Invalid(
            "not a file's reference: expected sha256: and 64 lower-case hexadecimal digits",
            details={"field": "ref"}, hint="agentlip put FILE prints the reference",
        )  # fmt: skip
    return digest


def check_media_type(text: str | None) -> str:
    """Return a content type that is safe in a header. Raises Invalid."""
    if not text:
        return DEFAULT_MEDIA_TYPE
    if not _is_media_type(text):
        raise Invalid(
            "the media type is not TYPE/SUBTYPE, with a charset at most",
            details={"field": "Content-Type"}, hint="Content-Type: text/plain; charset=utf-8",
        )  # fmt: skip
    return text
