"""Downloads segments and snapshots from an appliance, with resumption, and verifies them.

The files below `<out>/bronze` are those that an export writes, the manifest last.
"""

import json
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from spark import segments, snapshots
from spark.errors import SegmentTorn, SourceUnreachable
from spark.files import writable, write_whole
from spark.snapshots import SnapshotFolder

TIMEOUT_SECONDS = 30
ATTEMPTS_MAX = 4  # per segment; each continues where the last one ended
PAGE, PAGES_MAX, PAGE_BYTES_MAX = 100, 10_000, 16 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
SNAPSHOTS_KEPT = 2
PART_SECONDS_MAX = 86_400.0
REFUSAL_BYTES_MAX = 65_536
SCOPE = re.compile(r"[a-z]+:[a-z]+")


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


class ApplianceClient:
    """The requests to an appliance. The token is sent only to this address and never logged."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def pages(self, what: str, **query: Any) -> Iterator[dict[str, Any]]:
        """The pages of a list, such as `segments`, which each of them has by this name."""
        for _ in range(PAGES_MAX):
            with self._request(f"/api/v1/{what}?{urlencode({'limit': PAGE, **query})}") as reply:
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
        """Append to `part` from its current end. One extra byte is enough to detect another file.
        Returns how many bytes it has."""
        have = part.stat().st_size if part.exists() else 0
        if 0 < size <= have:
            return have
        with self._request(path, have) as reply:
            have = have if reply.status == 206 else 0
            with part.open("ab" if have else "wb") as file:
                while have <= size and (
                    chunk := self._read(reply, min(CHUNK_BYTES, size + 1 - have))
                ):
                    file.write(chunk)
                    have += len(chunk)
        return have

    def _request(self, path: str, begin: int = 0) -> Any:
        """The reply, from byte `begin` if the appliance can. Errors of the network become
        SourceUnreachable, here and in `_read`."""
        headers = {"Accept": "application/json, */*"}
        if begin:
            headers["Range"] = f"bytes={begin}-"
        try:
            request = Request(self._url + path, headers=headers)
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


def pull(
    url: str, token: str | None, target: Path, kinds: Sequence[str] = (segments.EVENTS,)
) -> int:
    """Download the segments of these logs that are missing below `target`. Returns their number."""
    appliance, count = ApplianceClient(url, token), 0
    with writable(target):
        for kind in kinds:
            (target / kind).mkdir(parents=True, exist_ok=True)
            for page in appliance.pages("segments", log=kind):
                _note_begin(page, target / kind)
                for listed in page["segments"]:
                    count += _bring_segment(appliance, listed, target / kind)
    return count


def _note_begin(page: dict[str, Any], folder: Path) -> None:
    """Note where the appliance's segments begin, unless older ones were downloaded before."""
    begin = page.get("begins_after", 0)
    if type(begin) is not int or begin < 0:
        raise SourceUnreachable("the appliance does not list segments")
    noted = folder / segments.RETENTION
    if begin and not noted.exists() and not any(folder.glob(f"*/*{segments.MANIFEST}")):
        write_whole(noted, json.dumps({"begins_after": begin}))


def _bring_segment(appliance: ApplianceClient, listed: Any, folder: Path) -> int:
    """Download a segment, unless its manifest is there. Returns whether it did."""
    kind = folder.name
    try:
        name, day = listed["name"], folder / f"date={listed['date']}"
        size, sha256 = int(listed["bytes"]), str(listed["sha256"])
        names = all(map(segments.FILE_NAME.fullmatch, (name, listed["date"])))
        sound = names and listed.get("kind", kind) == kind
    except (KeyError, TypeError, ValueError, AttributeError):
        sound = False
    if not sound:
        raise SegmentTorn("the appliance lists a malformed segment")
    manifest = day / f"{name.rpartition('.')[0]}{segments.MANIFEST}"
    if manifest.exists():
        return 0
    day.mkdir(exist_ok=True)
    part = day / f".{name}.part"
    appliance.bring(f"/api/v1/segments/{quote(name)}?log={kind}", part, size, sha256)
    part.rename(day / name)
    fields = {key: value for key, value in listed.items() if key != "name"}
    write_whole(manifest, json.dumps(fields | {"kind": kind, "file": name}))
    return 1


def pull_snapshot(url: str, token: str | None, target: Path) -> str:
    """Download the newest snapshot that the segments below `target` reach, or else the oldest one.
    Returns its name. An incomplete folder is never visible."""
    appliance, listed = ApplianceClient(url, token), {}
    for page in appliance.pages("snapshots"):
        for entry in page["snapshots"]:
            name = str(entry.get("name", "")) if isinstance(entry, dict) else ""
            if not segments.FILE_NAME.fullmatch(name):
                raise SegmentTorn("the appliance lists a malformed snapshot")
            fields = {key: value for key, value in entry.items() if key != "name"}
            listed[target / snapshots.FOLDER / name] = fields
    folders = [snapshots.parse(fields, folder) for folder, fields in listed.items()]
    chosen = snapshots.choose(folders, segments.manifests(target), url)
    with writable(target):
        if not chosen.path.exists():
            _bring_snapshot(appliance, chosen, listed[chosen.path])
        _keep_few(chosen.path)
    return chosen.path.name


def _bring_snapshot(
    appliance: ApplianceClient, chosen: SnapshotFolder, fields: dict[str, Any]
) -> None:
    folder = chosen.path
    draft = folder.with_name(f".{folder.name}.part")
    draft.mkdir(parents=True, exist_ok=True)
    for file, size, sha256 in chosen.tables.values():
        path = f"/api/v1/snapshots/{quote(folder.name)}/{quote(file)}"
        appliance.bring(path, draft / file, size, sha256)
    (draft / snapshots.MANIFEST).write_text(json.dumps(fields), encoding="utf-8")
    draft.rename(folder)


def _keep_few(newest: Path) -> None:
    """Remove old snapshots and old partial downloads."""
    ages = {path: time.time() - path.stat().st_mtime for path in newest.parent.iterdir()}
    whole = [path for path in ages if path != newest and not path.name.startswith(".")]
    old = sorted(whole, key=lambda path: ages[path])[SNAPSHOTS_KEPT - 1 :]
    partial = [path for path in ages if path.name.startswith(".") and ages[path] > PART_SECONDS_MAX]
    for path in (*old, *partial):
        shutil.rmtree(path, ignore_errors=True)


def _refusal(url: str, error: HTTPError) -> str:
    if error.code == 403 and (scope := _missing_scope(error)):
        return f"the token lacks the scope {scope} (HTTP 403): create one with --scope {scope}"
    if error.code in (401, 403):
        return f"{url} rejected the token (HTTP {error.code}): set one with --token-file"
    if error.code == 404:
        return f"{url} has no such file (HTTP 404): check the setting export.export"
    return f"{url} answered with HTTP {error.code}"


def _missing_scope(error: HTTPError) -> str | None:
    """The scope that the appliance names in its answer."""
    try:
        scope = json.loads(error.read(REFUSAL_BYTES_MAX))["details"]["scope"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None
    return scope if isinstance(scope, str) and SCOPE.fullmatch(scope) else None
