"""Defines [blobs]: limits for files that agents put."""

from typing import Annotated

import msgspec

Bytes = Annotated[int, msgspec.Meta(ge=1)]


class BlobSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file_bytes_max: Bytes = 64 * 1024 * 1024  # one file; a client has 30 s to send its bytes
    quota_bytes: Bytes = 1024 * 1024 * 1024  # all files that one token has put
    retention_days: Annotated[float, msgspec.Meta(ge=0)] = 7.0  # since it was put or last named
