"""Segments and snapshots straight from an appliance: listed, downloaded with resumption, verified,
then told.

They become the same files below `<out>/bronze` that an export writes, the manifest last.
"""

import json
import shutil
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from spark import source
from spark.dataset import writable
from spark.errors import SegmentMissing, SegmentTorn, SourceUnreachable, Usage

TIMEOUT_SECONDS = 30
TRIES_MAX = 4  # of one segment; each goes on where the last one broke off
PAGE = 100
CHUNK_BYTES = 1024 * 1024
TOKEN_BYTES_MAX = 4096
SNAPSHOTS_KEPT = 2
PART_SECONDS_MAX = 86_400.0


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
    """The requests that it takes. The token goes to this address only, never to a log."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def segments(self) -> Iterator[dict[str, Any]]:
        after = 0
        while True:
            page = self._listed("segments", after=after, limit=PAGE)
            try:
                found, following = page["segments"], page["next"]
            except (KeyError, TypeError):
                raise SourceUnreachable(f"{self._url} does not list segments") from None
            if not isinstance(found, list) or type(following) is not int:
                raise SourceUnreachable(f"{self._url} does not list segments")
            yield from found
            if not page.get("has_more") or following <= after:
                return
            after = following

    def snapshots(self) -> list[dict[str, Any]]:
        """The newest that it tells of, newest first."""
        found: list[dict[str, Any]] = []
        after: dict[str, Any] = {}
        try:
            while True:
                page = self._listed("snapshots", limit=PAGE, **after)
                found += page["snapshots"]
                if not page.get("has_more") or not page["snapshots"] or len(found) >= PAGE:
                    return found
                after = {"after": page["next"]}
        except (KeyError, TypeError):
            raise SourceUnreachable(f"{self._url} does not list snapshots") from None

    def _listed(self, what: str, **query: Any) -> Any:
        with self._open(f"/api/v1/{what}?{urlencode(query)}") as reply:
            try:
                return json.loads(reply.read())
            except (OSError, HTTPException) as error:
                raise SourceUnreachable(f"{self._url} broke off: {error!r}") from None
            except ValueError:
                raise SourceUnreachable(f"{self._url} does not list {what}") from None

    def bring(self, path: str, part: Path, size: int, sha256: str) -> None:
        """Whole and verified in `part`; it goes on where a former run broke off."""
        for left in reversed(range(TRIES_MAX)):
            try:
                self._download(path, part, size)
                if part.exists() and part.stat().st_size >= size:
                    break
            except SourceUnreachable:
                if not left:
                    raise
            except (OSError, HTTPException) as error:
                if not left:
                    raise SourceUnreachable(f"{self._url} broke off: {error!r}") from None
        try:
            source.verify_file(part, size, sha256)
        except Exception:
            part.unlink(missing_ok=True)
            raise

    def _download(self, path: str, part: Path, size: int) -> None:
        """Into `part`, from where it ends by now."""
        have = part.stat().st_size if part.exists() else 0
        if have > size:
            part.unlink()
            have = 0
        if have == size and size:
            return
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self._open(path, headers) as reply:
            mode = "ab" if reply.status == 206 else "wb"
            have = have if reply.status == 206 else 0
            with writable(part), part.open(mode) as file:
                # One byte more than promised is enough to see that it is another file.
                while have <= size and (chunk := _read(reply, size + 1 - have)):
                    file.write(chunk)
                    have += len(chunk)

    def _open(self, path: str, headers: dict[str, str] | None = None) -> Any:
        sent = {"Accept": "application/json, */*", **(headers or {})}
        try:
            request = Request(self._url + path, headers=sent)
            if self._token:  # not to where a redirection leads
                request.add_unredirected_header("Authorization", f"Bearer {self._token}")
            return urlopen(request, timeout=TIMEOUT_SECONDS)
        except HTTPError as error:
            raise SourceUnreachable(_refusal(self._url, error)) from None
        except (URLError, OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise SourceUnreachable(f"{self._url} can't be reached: {reason}") from None


def _read(reply: Any, most: int) -> bytes:
    """Told apart from writing: what the network does is not the disk's fault."""
    try:
        found: bytes = reply.read(min(CHUNK_BYTES, most))
    except (OSError, HTTPException) as error:
        raise _BrokenOff(repr(error)) from None
    return found


class _BrokenOff(HTTPException):
    """While a body was read."""


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
    told = folder / f"{stem}{source.MANIFEST}"
    if told.exists():
        return 0
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{name}.part"
    appliance.bring(f"/api/v1/segments/{quote(name)}", part, size, sha256)
    draft = told.with_suffix(".part")
    with writable(folder):
        part.rename(folder / name)
        draft.write_text(json.dumps(manifest), encoding="utf-8")
        draft.replace(told)
    return 1


def pull_snapshot(url: str, token: str | None, target: Path) -> str:
    """The name of the newest snapshot that the segments below `target` reach; without any such
    the newest at all. It is below `target` then, the folder whole or not there."""
    appliance = Appliance(url, token)
    listed = appliance.snapshots()
    if not listed:
        raise SegmentMissing(
            f"{url} has no snapshot of its tables", "there: agentlip export snapshot"
        )
    reach = max((one.last for one in source.manifests(target)), default=0)
    try:
        said = next((one for one in listed if one["as_of_event_id"] <= reach), listed[0])
        name, files = said["name"], list(said["files"].values())
        wanted = [(one["file"], int(one["bytes"]), str(one["sha256"])) for one in files]
        for word in (name, *(file for file, _, _ in wanted)):
            if not source.FILE_NAME.fullmatch(word):
                raise ValueError(word)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SegmentTorn("the appliance lists a snapshot that is malformed") from None
    folder, draft = target / "snapshot" / name, target / "snapshot" / f".{name}.part"
    if not folder.exists():
        _bring_snapshot(appliance, said, wanted, draft)
        with writable(draft):
            draft.rename(folder)
    _keep_few(folder)
    return str(name)


def _bring_snapshot(
    appliance: Appliance, said: dict[str, Any], wanted: list[tuple[str, int, str]], draft: Path
) -> None:
    with writable(draft):
        draft.mkdir(parents=True, exist_ok=True)
    for file, size, sha256 in wanted:
        path = f"/api/v1/snapshots/{quote(said['name'])}/{quote(file)}"
        appliance.bring(path, draft / file, size, sha256)
    manifest = {key: value for key, value in said.items() if key != "name"}
    with writable(draft):
        (draft / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def _keep_few(newest: Path) -> None:
    """Older snapshots are at the appliance, or nobody's any more; and nobody goes on with a part
    of one for so long."""
    ages = {each: time.time() - each.stat().st_mtime for each in newest.parent.iterdir()}
    whole = [each for each in ages if each != newest and not each.name.startswith(".")]
    old = sorted(whole, key=lambda each: ages[each])[SNAPSHOTS_KEPT - 1 :]
    parts = [each for each in ages if each.name.startswith(".") and ages[each] > PART_SECONDS_MAX]
    for each in (*old, *parts):
        shutil.rmtree(each, ignore_errors=True)


def _refusal(url: str, error: HTTPError) -> str:
    if error.code in (401, 403):
        return f"{url} refuses the token (HTTP {error.code}): name one with --token-file"
    if error.code == 404:
        return f"{url} has no such file (HTTP 404): does it export? see [jobs] export"
    return f"{url} answers HTTP {error.code}"
