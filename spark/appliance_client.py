"""Sends requests to an appliance, and downloads files with resumption and verification."""

import json
import re
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from spark import segments
from spark.errors import SourceUnreachable

TIMEOUT_SECONDS = 30
ATTEMPTS_MAX = 4  # per file; each continues where the last one ended
PAGE, PAGES_MAX, PAGE_BYTES_MAX = 100, 10_000, 16 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
REFUSAL_BYTES_MAX = 65_536
SCOPE = re.compile(r"[a-z]+:[a-z]+")


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


class ApplianceClient:
    """Requests to an appliance. The token is sent only to this address and never logged."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def pages(self, what: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list, such as `segments`, which is also the key in each page."""
        for _ in range(PAGES_MAX):
            with self.request(f"/api/v1/{what}?{urlencode({'limit': PAGE, **query})}") as reply:
                text = self._read(reply, PAGE_BYTES_MAX)
            try:
                page = json.loads(text)
                rows, following = page[what], page.get("has_more") and page["next"]
            except (ValueError, KeyError, TypeError, AttributeError):
                rows = following = None
            if not isinstance(rows, list):
                raise SourceUnreachable(f"{self._url} does not list {what}")
            yield page
            if not following:
                return
            query["after"] = following

    def bring(self, path: str, part: Path, size: int, sha256: str) -> None:
        """Download to `part` and verify it. Continues an interrupted download. Raises OSError only
        for `part`."""
        for left in reversed(range(ATTEMPTS_MAX)):
            try:
                if self._download(path, part, size) >= size:
                    break
            except SourceUnreachable:
                if not left:
                    raise
        try:
            segments.verify_file(part, size, sha256)
        except Exception:
            part.unlink(missing_ok=True)
            raise

    def _download(self, path: str, part: Path, size: int) -> int:
        """Append to `part` from its current end, and return its size in bytes. One extra byte is
        enough to detect another file."""
        have = part.stat().st_size if part.exists() else 0
        if 0 < size <= have:
            return have
        wanted = {"Range": f"bytes={have}-"} if have else {}
        with self.request(path, None, **wanted) as reply:
            have = have if reply.status == 206 else 0
            with part.open("ab" if have else "wb") as file:
                while have <= size and (
                    chunk := self._read(reply, min(CHUNK_BYTES, size + 1 - have))
                ):
                    file.write(chunk)
                    have += len(chunk)
        return have

    def request(self, path: str, data: bytes | None = None, **headers: str) -> Any:
        """Send a request and return the reply. `data` is JSON to post. Network errors become
        SourceUnreachable, here and in `_read`."""
        sent = {"Accept": "application/json, */*", "Content-Type": "application/json", **headers}
        try:
            request = Request(self._url + path, data, sent)
            if self._token:  # never to the target of a redirect
                request.add_unredirected_header("Authorization", f"Bearer {self._token}")
            return urlopen(request, timeout=TIMEOUT_SECONDS)
        except HTTPError as error:
            raise SourceUnreachable(_refusal(self._url, error)) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise SourceUnreachable(f"{self._url} cannot be reached: {reason}") from None

    def _read(self, reply: Any, bytes_max: int) -> bytes:
        try:
            return bytes(reply.read(bytes_max))
        except (OSError, HTTPException) as error:
            broke = f"the download from {self._url} broke off: {error!r}"
            raise SourceUnreachable(broke) from None


def _refusal(url: str, error: HTTPError) -> str:
    if error.code == 403 and (scope := _missing_scope(error)):
        return f"the token lacks the scope {scope} (HTTP 403): create one with --scope {scope}"
    if error.code in (401, 403):
        return f"{url} rejected the token (HTTP {error.code}): set one with --token-file"
    return f"{url} answered with HTTP {error.code}"


def _missing_scope(error: HTTPError) -> str | None:
    """Return the scope that the appliance names in its answer."""
    try:
        scope = json.loads(error.read(REFUSAL_BYTES_MAX))["details"]["scope"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None
    return scope if isinstance(scope, str) and SCOPE.fullmatch(scope) else None
