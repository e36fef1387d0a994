"""The client's verbs for files: put, get, erase. Content is sent and received in pieces."""

import hashlib
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import msgspec

from appliance.kernel.errors import Unavailable
from appliance.kernel.whole_file import whole_file
from appliance.sdk import models
from appliance.sdk.calls import HubCalls
from appliance.sdk.http import HubClient, Progress, ignore_progress
from appliance.sdk.paths import path_segment

PATH = "/api/v1/blobs"
DEFAULT_MEDIA_TYPE = "application/octet-stream"


class WrongContent(Unavailable):
    code = "BLOB_DAMAGED"
    default_message = "the content has another hash than its reference"
    default_hint = "try again; then: agentlip doctor --run blobs --all"


class BlobVerbs(HubCalls):
    """Verbs for files that texts name as `sha256:HEX`."""

    def put_file(
        self, file: Path | str | BinaryIO, media_type: str = DEFAULT_MEDIA_TYPE
    ) -> models.BlobPut:
        """Store a file once, by its hash; name it in texts by `blob.ref`. Raises WrongContent."""
        with self._hubs.lend() as hub:
            if isinstance(file, Path | str):
                with Path(file).open("rb") as source:
                    return put_file(hub, source, media_type)
            return put_file(hub, file, media_type)

    def get_file(self, ref: str) -> bytes:
        """Return a file's content, whose hash is checked. Raises WrongContent."""
        target = BytesIO()
        with self._hubs.lend() as hub:
            get_file(hub, ref, target)
        return target.getvalue()

    def save_file(self, ref: str, path: Path | str) -> None:
        """Write a file's content to `path`, completely or not at all. Raises WrongContent."""
        with self._hubs.lend() as hub, whole_file(Path(path), private=False) as target:
            get_file(hub, ref, target)

    def erase_file(self, ref: str) -> models.BlobErased:
        """Erase a file now, although texts may name it. Needs the scope `hub:admin`."""
        with self._hubs.lend() as hub:
            return msgspec.convert(hub.delete(blob_path(ref)), models.BlobErased)


def blob_path(ref: str) -> str:
    return f"{PATH}/{path_segment(ref)}"


def put_file(
    hub: HubClient, source: BinaryIO, media_type: str, progress: Progress = ignore_progress
) -> models.BlobPut:
    """Send a file, and compare the hash that the hub computed. Raises WrongContent."""
    answer, digest = hub.upload(PATH, source, media_type, progress)
    put = msgspec.convert(answer, models.BlobPut)
    if put.blob.ref != f"sha256:{digest}":
        raise WrongContent
    return put


def get_file(
    hub: HubClient,
    ref: str,
    target: BinaryIO,
    span: str | None = None,
    progress: Progress = ignore_progress,
) -> None:
    """Write a file to `target`, or the bytes `span`, such as `0-99`. Raises WrongContent for a
    whole file with another hash."""
    headers = {} if span is None else {"Range": f"bytes={span}"}
    digest = hashlib.sha256()
    for data in hub.download(blob_path(ref), headers, progress):
        digest.update(data)
        target.write(data)
    if span is None and ref != f"sha256:{digest.hexdigest()}":
        raise WrongContent
