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
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from spark import segments
from spark.errors import SegmentMissing, SegmentTorn, SourceUnreachable, Usage
from spark.files import writable

TIMEOUT_SECONDS = 30
ATTEMPTS_MAX = 4  # per segment; each continues where the last one ended
PAGE = 100
CHUNK_BYTES = 1024 * 1024
TOKEN_BYTES_MAX = 4096
SNAPSHOTS_KEPT = 2
PART_SECONDS_MAX = 86_400.0
REFUSAL_BYTES_MAX = 65_536
SCOPE = re.compile(r"[a-z]+:[a-z]+")


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def read_token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            token = opened.read(TOKEN_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError):
        raise Usage(f"the token file {file} cannot be read") from None
    if not token or any(not " " < character < "\x7f" for character in token):
        raise Usage(f"the token file {file} contains no valid token")
    return token


class ApplianceClient:
    """The requests to an appliance. The token is sent only to this address and never logged."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def segments(self, kind: str = segments.EVENTS) -> Iterator[dict[str, Any]]:
        """The pages of the list of a log's segments."""
        after, log = 0, {} if kind == segments.EVENTS else {"log": kind}
        while True:
            page = self._list("segments", after=after, limit=PAGE, **log)
            try:
                rows, following = page["segments"], page["next"]
            except (KeyError, TypeError):
                raise SourceUnreachable(f"{self._url} does not list segments") from None
            if not isinstance(rows, list) or type(following) is not int:
                raise SourceUnreachable(f"{self._url} does not list segments")
            yield page
            if not page.get("has_more") or following <= after:
                return
            after = following

    def snapshots(self) -> list[dict[str, Any]]:
        """The newest snapshots, newest first."""
        rows: list[dict[str, Any]] = []
        after: dict[str, Any] = {}
        try:
            while True:
                page = self._list("snapshots", limit=PAGE, **after)
                rows += page["snapshots"]
                if not page.get("has_more") or not page["snapshots"] or len(rows) >= PAGE:
                    return rows
                after = {"after": page["next"]}
        except (KeyError, TypeError):
            raise SourceUnreachable(f"{self._url} does not list snapshots") from None

    def _list(self, what: str, **query: Any) -> Any:
        with self._open(f"/api/v1/{what}?{urlencode(query)}") as reply:
            try:
                return json.loads(reply.read())
            except (OSError, HTTPException) as error:
                raise SourceUnreachable(
                    f"the download from {self._url} broke off: {error!r}"
                ) from None
            except ValueError:
                raise SourceUnreachable(f"{self._url} does not list {what}") from None

    def bring(self, path: str, part: Path, size: int, sha256: str) -> None:
        """Download to `part` and verify it. Continues an interrupted download."""
        for left in reversed(range(ATTEMPTS_MAX)):
            try:
                self._download(path, part, size)
                if part.exists() and part.stat().st_size >= size:
                    break
            except SourceUnreachable:
                if not left:
                    raise
            except (OSError, HTTPException) as error:
                if not left:
                    raise SourceUnreachable(
                        f"the download from {self._url} broke off: {error!r}"
                    ) from None
        try:
            segments.verify_file(part, size, sha256)
        except Exception:
            part.unlink(missing_ok=True)
            raise

    def _download(self, path: str, part: Path, size: int) -> None:
        """Append to `part` from its current end."""
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
                # One extra byte is enough to detect another file.
                while have <= size and (chunk := _read(reply, size + 1 - have)):
                    file.write(chunk)
                    have += len(chunk)

    def _open(self, path: str, headers: dict[str, str] | None = None) -> Any:
        sent = {"Accept": "application/json, */*", **(headers or {})}
        try:
            request = Request(self._url + path, headers=sent)
            if self._token:  # never to the target of a redirect
                request.add_unredirected_header("Authorization", f"Bearer {self._token}")
            return urlopen(request, timeout=TIMEOUT_SECONDS)
        except HTTPError as error:
            raise SourceUnreachable(_refusal(self._url, error)) from None
        except (URLError, OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise SourceUnreachable(f"{self._url} cannot be reached: {reason}") from None


def _read(reply: Any, bytes_max: int) -> bytes:
    """Read a chunk. Network errors must not be reported as errors of the disk."""
    try:
        chunk: bytes = reply.read(min(CHUNK_BYTES, bytes_max))
    except (OSError, HTTPException) as error:
        raise _BrokenOff(repr(error)) from None
    return chunk


class _BrokenOff(HTTPException):
    """The connection failed while a body was read."""


def pull(
    url: str, token: str | None, target: Path, kinds: Sequence[str] = (segments.EVENTS,)
) -> int:
    """Download the segments of these logs that are missing below `target`. Returns their number."""
    appliance = ApplianceClient(url, token)
    count = 0
    for kind in kinds:
        for page in appliance.segments(kind):
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
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / f".{segments.RETENTION}.part"
            draft.write_text(json.dumps({"begins_after": begin}), encoding="utf-8")
            draft.replace(noted)


def _bring_segment(appliance: ApplianceClient, listed: dict[str, Any], folder: Path) -> int:
    kind = folder.name
    try:
        name, date, stem = listed["name"], listed["date"], listed["name"].rsplit(".", 1)[0]
        if listed.get("kind", kind) != kind:
            raise ValueError(kind)
        for word in (name, date):
            if not segments.FILE_NAME.fullmatch(word):
                raise ValueError(word)
        manifest = {**listed, "kind": kind, "file": name}
        manifest.pop("name")
        size, sha256 = int(listed["bytes"]), str(listed["sha256"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SegmentTorn("the appliance lists a malformed segment") from None
    day = folder / f"date={date}"
    manifest_path = day / f"{stem}{segments.MANIFEST}"
    if manifest_path.exists():
        return 0
    with writable(day):
        day.mkdir(parents=True, exist_ok=True)
    part = day / f".{name}.part"
    log = "" if kind == segments.EVENTS else f"?log={kind}"
    appliance.bring(f"/api/v1/segments/{quote(name)}{log}", part, size, sha256)
    draft = manifest_path.with_suffix(".part")
    with writable(day):
        part.rename(day / name)
        draft.write_text(json.dumps(manifest), encoding="utf-8")
        draft.replace(manifest_path)
    return 1


def pull_snapshot(url: str, token: str | None, target: Path) -> str:
    """Download the newest snapshot that the segments below `target` reach, or else the newest one.
    Returns its name. An incomplete folder is never visible."""
    appliance = ApplianceClient(url, token)
    listed = appliance.snapshots()
    if not listed:
        raise SegmentMissing(
            f"{url} has no snapshot of its tables", "run on the appliance: agentlip export snapshot"
        )
    last_event = max((entry.last for entry in segments.manifests(target)), default=0)
    try:
        newest = next(
            (entry for entry in listed if entry["as_of_event_id"] <= last_event), listed[0]
        )
        name, files = newest["name"], list(newest["files"].values())
        wanted = [(entry["file"], int(entry["bytes"]), str(entry["sha256"])) for entry in files]
        for word in (name, *(file for file, _, _ in wanted)):
            if not segments.FILE_NAME.fullmatch(word):
                raise ValueError(word)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SegmentTorn("the appliance lists a malformed snapshot") from None
    folder, draft = target / "snapshot" / name, target / "snapshot" / f".{name}.part"
    if not folder.exists():
        _bring_snapshot(appliance, newest, wanted, draft)
        with writable(draft):
            draft.rename(folder)
    _keep_few(folder)
    return str(name)


def _bring_snapshot(
    appliance: ApplianceClient,
    listed: dict[str, Any],
    wanted: list[tuple[str, int, str]],
    draft: Path,
) -> None:
    with writable(draft):
        draft.mkdir(parents=True, exist_ok=True)
    for file, size, sha256 in wanted:
        path = f"/api/v1/snapshots/{quote(listed['name'])}/{quote(file)}"
        appliance.bring(path, draft / file, size, sha256)
    manifest = {key: value for key, value in listed.items() if key != "name"}
    with writable(draft):
        (draft / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def _keep_few(newest: Path) -> None:
    """Remove old snapshots and old partial downloads."""
    ages = {path: time.time() - path.stat().st_mtime for path in newest.parent.iterdir()}
    whole = [age for age in ages if age != newest and not age.name.startswith(".")]
    old = sorted(whole, key=lambda path: ages[path])[SNAPSHOTS_KEPT - 1 :]
    partial = [age for age in ages if age.name.startswith(".") and ages[age] > PART_SECONDS_MAX]
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
