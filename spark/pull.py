"""Segments straight from an appliance: listed, downloaded with resumption, verified, then told.

They become the same files below `<out>/bronze` that an export writes, the manifest last.
"""

import json
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from spark import source
from spark.dataset import writable
from spark.errors import SegmentTorn, SourceUnreachable, Usage

TIMEOUT_SECONDS = 30
TRIES_MAX = 4  # of one segment; each goes on where the last one broke off
PAGE = 100
CHUNK_BYTES = 1024 * 1024
TOKEN_BYTES_MAX = 4096


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def read_token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            token = opened.read(TOKEN_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError):
        raise Usage(f"the token file {file} can't be read") from None
    if not token or any(not " " < letter < "\x7f" for letter in token):
        raise Usage(f"the token file {file} holds no token")
    return token


class Appliance:
    """The two requests that it takes. The token goes to this address only, never to a log."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def segments(self) -> Iterator[dict[str, Any]]:
        after = 0
        while True:
            query = urlencode({"after": after, "limit": PAGE})
            with self._open(f"/api/v1/segments?{query}") as reply:
                try:
                    page = json.loads(reply.read())
                    found, following = page["segments"], page["next"]
                except (ValueError, KeyError, TypeError):
                    raise SourceUnreachable(f"{self._url} does not list segments") from None
            yield from found
            if not page.get("has_more") or following <= after:
                return
            after = following

    def download(self, name: str, part: Path, size: int) -> None:
        """Into `part`, from where it ends by now."""
        have = part.stat().st_size if part.exists() else 0
        if have > size:
            part.unlink()
            have = 0
        if have == size and size:
            return
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self._open(f"/api/v1/segments/{quote(name)}", headers) as reply:
            mode = "ab" if reply.status == 206 else "wb"
            with writable(part), part.open(mode) as file:
                while chunk := reply.read(CHUNK_BYTES):
                    file.write(chunk)

    def _open(self, path: str, headers: dict[str, str] | None = None) -> Any:
        sent = {"Accept": "application/json, */*", **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        try:
            return urlopen(Request(self._url + path, headers=sent), timeout=TIMEOUT_SECONDS)
        except HTTPError as error:
            raise SourceUnreachable(_refusal(self._url, error)) from None
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise SourceUnreachable(f"{self._url} can't be reached: {reason}") from None


def pull(url: str, token: str | None, target: Path) -> int:
    """What is not below `target` yet; how many segments came."""
    appliance = Appliance(url, token)
    count = 0
    for said in appliance.segments():
        count += _one(appliance, said, target / "events")
    return count


def _one(appliance: Appliance, said: dict[str, Any], events: Path) -> int:
    try:
        name, date, stem = said["name"], said["date"], said["name"].rsplit(".", 1)[0]
        for word in (name, date):
            if not source.FILE_NAME.fullmatch(word):
                raise ValueError(word)
        manifest = {**said, "kind": "events", "file": name}
        manifest.pop("name")
        size, sha256 = int(said["bytes"]), str(said["sha256"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SegmentTorn("the appliance lists a segment that is malformed") from None
    folder = events / f"date={date}"
    path, told = folder / name, folder / f"{stem}{source.MANIFEST}"
    if told.exists():
        return 0
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{name}.part"
    for left in reversed(range(TRIES_MAX)):
        try:
            appliance.download(name, part, size)
            if part.exists() and part.stat().st_size >= size:
                break
        except (OSError, HTTPException, SourceUnreachable):
            if not left:
                raise
    _believe(part, path, told, size, sha256, manifest)
    return 1


def _believe(
    part: Path, path: Path, told: Path, size: int, sha256: str, manifest: dict[str, Any]
) -> None:
    try:
        source.verify_file(part, size, sha256)
    except Exception:
        part.unlink(missing_ok=True)
        raise
    draft = told.with_suffix(".part")
    with writable(path.parent):
        part.rename(path)
        draft.write_text(json.dumps(manifest), encoding="utf-8")
        draft.replace(told)


def _refusal(url: str, error: HTTPError) -> str:
    if error.code in (401, 403):
        return f"{url} refuses the token (HTTP {error.code}): name one with --token-file"
    if error.code == 404:
        return f"{url} has no such segments (HTTP 404): does it export? see [jobs] export"
    return f"{url} answers HTTP {error.code}"
