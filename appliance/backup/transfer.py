"""How a set is divided into files of a target, and what is known about its upload.

`upload.json` at the target lists its files there. `upload-TARGET.json` beside the local manifest
has what was already sent, so that an interrupted upload continues.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from appliance.backup import manifest as manifests
from appliance.backup.errors import SetDamaged, TargetFailed
from appliance.backup.manifest import SetFile, SetManifest
from appliance.backup.sets import VERIFICATION, write_private, writing
from appliance.backup.settings import TargetSettings

INDEX = "upload.json"
FORMAT = 1
_RESERVED = {INDEX, VERIFICATION, manifests.FILE}
_READ_BYTES = 1024 * 1024
_PARTS_MAX = 10_000  # per set
_STATE_BYTES_MAX = 16 * 1024 * 1024
Bytes = Annotated[int, Meta(ge=0)]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A file at the target: `bytes` bytes of `file` of the set, from `offset` on."""

    name: str
    file: str
    offset: Bytes
    bytes: Bytes
    sha256: str


class TransferIndex(msgspec.Struct, frozen=True, kw_only=True):
    """`upload.json`. A stranger can join the parts of a file in the order of their names."""

    format: int = FORMAT
    set: str
    db_id: str
    parts: tuple[Part, ...]


class IndexOwner(msgspec.Struct, frozen=True):
    """What `upload.json` has about the workspace."""

    db_id: str


class Sent(msgspec.Struct, frozen=True):
    sha256: str
    bytes: int
    tag: str


class UploadState(msgspec.Struct, kw_only=True):
    """`upload-TARGET.json`. `address`: the target's, since a name may get another address."""

    address: str
    status: Literal["running", "complete", "failed", "damaged"] = "running"
    part_bytes: int = 0
    started_at: str = ""
    finished_at: str = ""
    bytes: int = 0
    problem: str = ""
    sent: dict[str, Sent] = {}


def address_of(target: TargetSettings) -> str:
    return f"{target.endpoint} {target.url}".strip()


def state_file(set_path: Path, target: str) -> Path:
    return set_path / f"upload-{target}.json"


def read_state(set_path: Path, target: TargetSettings) -> UploadState | None:
    """None without an upload to this address; a damaged file only costs sending it again."""
    try:
        with state_file(set_path, target.name).open("rb") as file:
            state = msgspec.json.decode(file.read(_STATE_BYTES_MAX), type=UploadState)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return state if state.address == address_of(target) else None


def write_state(set_path: Path, target: str, state: UploadState) -> None:
    with writing():
        write_private(state_file(set_path, target), msgspec.json.encode(state))


def part_bytes_of(manifest: SetManifest, part_bytes: int) -> int:
    """The size of parts in bytes: as set, or more if the set had too many of them."""
    return max(part_bytes, -(-manifest.stored_bytes // _PARTS_MAX), 1)


def divide(
    set_path: Path,
    manifest: SetManifest,
    part_bytes: int | None,
    tell: Callable[[int], None] | None = None,
) -> TransferIndex:
    """The parts of all files, with their hashes. Reads each file once; `tell` gets bytes.

    `part_bytes` None: each file is one part. Raises SetDamaged if a file is not as recorded.
    """
    parts: list[Part] = []
    for file in manifest.files:
        if file.name in _RESERVED:
            raise SetDamaged(f"the backup has a file with the name {file.name}")
        parts += _divided(set_path, file, part_bytes or max(file.stored_bytes, 1), tell)
    if len({part.name for part in parts}) != len(parts):
        raise SetDamaged("two files of the backup have the same name")
    return TransferIndex(set=manifest.name, db_id=manifest.db_id, parts=tuple(parts))


def _divided(
    set_path: Path, file: SetFile, part_bytes: int, tell: Callable[[int], None] | None
) -> list[Part]:
    parts: list[Part] = []
    whole, offset = hashlib.sha256(), 0
    single = file.stored_bytes <= part_bytes
    while offset < file.stored_bytes or not parts:
        size = min(part_bytes, file.stored_bytes - offset)
        digest = hashlib.sha256()
        for piece in pieces(set_path, file.name, offset, size):
            whole.update(piece)
            digest.update(piece)
            if tell is not None:
                tell(len(piece))
        name = file.name if single else f"{file.name}.part-{len(parts) + 1:05}"
        parts.append(
            Part(name=name, file=file.name, offset=offset, bytes=size, sha256=digest.hexdigest())
        )
        offset += size
    longer = next(pieces(set_path, file.name, offset, 1, complete=False), b"")
    if longer or whole.hexdigest() != file.stored_sha256:
        raise SetDamaged(f"{file.name} is not as the manifest recorded it")
    return parts


def pieces(
    set_path: Path, name: str, offset: int, size: int, *, complete: bool = True
) -> Iterator[bytes]:
    """`size` bytes of a file of the set. Raises SetDamaged if there are fewer and `complete`."""
    try:
        with os.fdopen(os.open(set_path / name, os.O_RDONLY | os.O_NOFOLLOW), "rb") as opened:
            opened.seek(offset)
            while size > 0 and (piece := opened.read(min(size, _READ_BYTES))):
                size -= len(piece)
                yield piece
    except OSError as error:
        raise SetDamaged(f"{name} can't be read: {error.strerror}") from None
    if size and complete:
        raise SetDamaged(f"{name} is shorter than the manifest recorded")


def decode_index(text: bytes, manifest: SetManifest) -> TransferIndex:
    """The index of a target, which is not trusted. Raises TargetFailed.

    Each file of the manifest is covered by its parts exactly once.
    """
    try:
        index = msgspec.json.decode(text, type=TransferIndex)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise TargetFailed(f"{INDEX} of {manifest.name} can't be decoded") from None
    ends = {file.name: 0 for file in manifest.files}
    for part in index.parts:
        if "/" in part.name or part.name in (*_RESERVED, "", ".", "..") or "\0" in part.name:
            raise TargetFailed(f"{INDEX} of {manifest.name} names a file outside of it")
        if ends.get(part.file) != part.offset:
            raise TargetFailed(f"{INDEX} of {manifest.name} does not match its manifest")
        ends[part.file] = part.offset + part.bytes
    listed = {part.file for part in index.parts}
    if any(ends[f.name] != f.stored_bytes or f.name not in listed for f in manifest.files):
        raise TargetFailed(f"{INDEX} of {manifest.name} does not match its manifest")
    return index


def whole_index(manifest: SetManifest) -> TransferIndex:
    """The index of a set that was copied by another program, without parts."""
    parts = tuple(
        Part(name=f.name, file=f.name, offset=0, bytes=f.stored_bytes, sha256=f.stored_sha256)
        for f in manifest.files
    )
    return TransferIndex(set=manifest.name, db_id=manifest.db_id, parts=parts)
