"""Tools for agents: put a text as a file, read a file's part."""

from collections.abc import Sequence
from io import BytesIO
from typing import Annotated

from msgspec import Meta, Struct

from appliance.hub.blobs import wire
from appliance.hub.blobs.service import Blobs, Body
from appliance.hub.wire import POST, READ
from appliance.kernel.auth import Principal
from appliance.kernel.errors import Invalid
from appliance.kernel.tool import Tool


class PutFileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=wire.TEXT_BYTES_MAX)]
    media_type: str = "text/plain; charset=utf-8"


class ReadFileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    ref: wire.BlobReference
    start: Annotated[int, Meta(ge=0, description="in bytes")] = 0
    bytes_max: Annotated[int, Meta(ge=1, le=wire.TEXT_BYTES_MAX)] = 8192


class FileText(Struct, frozen=True, omit_defaults=True):
    """A file's part. `next`: where the next part starts; missing at the end."""

    text: str
    size: int
    next: int | None = None


def tools(blobs: Blobs) -> Sequence[Tool]:
    def put_file(arguments: PutFileArguments, who: Principal) -> wire.Blob:
        data = arguments.text.encode()
        media_type = wire.check_media_type(arguments.media_type)
        return blobs.put(Body(BytesIO(data).read, len(data), media_type), who).blob

    def read_file(arguments: ReadFileArguments, who: Principal) -> FileText:
        file = blobs.find(arguments.ref, who)
        start, stop = arguments.start, min(arguments.start + arguments.bytes_max, file.size)
        data = b"".join(file.chunks(start, stop)) if start < stop else b""
        text = decode_part(data, whole=stop == file.size)
        end = start + len(text.encode())
        return FileText(text, file.size, end if end < file.size else None)

    return [
        Tool(
            "put_file", "Put a text aside",
            "Store a long text once, and name it in messages by its ref instead of repeating it.",
            PutFileArguments, wire.Blob, POST, put_file, "adds", idempotent=True, by_channel=True,
        ),
        Tool(
            "read_file", "Read a part of a file",
            "Read a text file, named sha256:HEX in a message, part by part.",
            ReadFileArguments, FileText, READ, read_file, by_channel=True,
        ),
    ]  # fmt: skip


def decode_part(data: bytes, *, whole: bool) -> str:
    """Return a part as text, without a character that its end cuts. Raises Invalid for bytes that
    are not text."""
    for cut in range(1 if whole else 4):
        try:
            return data[: len(data) - cut].decode()
        except UnicodeDecodeError as error:
            if error.start < len(data) - 4:
                break
    raise Invalid("the file is not UTF-8 text", hint="agentlip get REF --output FILE")
