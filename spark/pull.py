"""Downloads segments and snapshots from an appliance, with resumption, and verifies them.

The files below `<out>/bronze` are those that an export writes, the manifest last.
"""

import json
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from spark import segments
from spark.errors import SegmentMissing, SegmentTorn, SourceUnreachable
from spark.files import writable, write_whole

TIMEOUT_SECONDS = 30
ATTEMPTS_MAX = 4  # per segment; each continues where the last one ended
PAGE, PAGES_MAX = 100, 10_000
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
            with self._open(f"/api/v1/{what}?{urlencode({'limit': PAGE, **query})}") as reply:
                text = reply.read()
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
        """Download to `part` and verify it. Continues an interrupted download."""
        for left in reversed(range(ATTEMPTS_MAX)):
            try:
                self._download(path, part, size)
            except SourceUnreachable:
                if not left:
                    raise
            if part.exists() and part.stat().st_size >= size:
                break
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
            with writable(part):
                file = part.open(mode)
            with file:
                # One extra byte is enough to detect another file.
                while have <= size and (chunk := reply.read(min(CHUNK_BYTES, size + 1 - have))):
                    with writable(part):
                        file.write(chunk)
                        file.flush()
                    have += len(chunk)

    @contextmanager
    def _open(self, path: str, headers: dict[str, str] | None = None) -> Iterator[Any]:
        """The reply. Errors of the network in the block become SourceUnreachable too."""
        sent = {"Accept": "application/json, */*", **(headers or {})}
        try:
            request = Request(self._url + path, headers=sent)
            if self._token:  # never to the target of a redirect
                request.add_unredirected_header("Authorization", f"Bearer {self._token}")
            reply = urlopen(request, timeout=TIMEOUT_SECONDS)
        except HTTPError as error:
            raise SourceUnreachable(_refusal(self._url, error)) from None
        except (URLError, OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise SourceUnreachable(f"{self._url} cannot be reached: {reason}") from None
        with reply:
            try:
                yield reply
            except (OSError, HTTPException) as error:
                broke = f"the download from {self._url} broke off: {error!r}"
                raise SourceUnreachable(broke) from None


def pull(
    url: str, token: str | None, target: Path, kinds: Sequence[str] = (segments.EVENTS,)
) -> int:
    """Download the segments of these logs that are missing below `target`. Returns their number."""
    appliance = ApplianceClient(url, token)
    count = 0
    for kind in kinds:
        for page in appliance.pages(
            "segments", **({} if kind == segments.EVENTS else {"log": kind})
        ):
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
            write_whole(noted, json.dumps({"begins_after": begin}))


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
    with writable(day):
        part.rename(day / name)
        write_whole(manifest_path, json.dumps(manifest))
    return 1


def pull_snapshot(url: str, token: str | None, target: Path) -> str:
    """Download the newest snapshot that the segments below `target` reach, or else the newest one.
    Returns its name. An incomplete folder is never visible."""
    appliance = ApplianceClient(url, token)
    listed = [entry for page in appliance.pages("snapshots") for entry in page["snapshots"]]
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
