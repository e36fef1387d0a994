"""Downloads segments and snapshots from an appliance.

The files below `<out>/bronze` are those that an export writes, the manifest last.
"""

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spark import segments, snapshots
from spark.appliance_client import ApplianceClient
from spark.errors import SegmentTorn, SourceUnreachable
from spark.files import writable, write_whole
from spark.snapshots import SnapshotFolder

SNAPSHOTS_KEPT = 2
PART_SECONDS_MAX = 86_400.0


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
