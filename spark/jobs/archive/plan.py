"""Reads and writes an archive's catalogue and finds days missing there. Needs no Spark.

    <out>/catalogue.json                                         written last, as a whole
    <out>/<log>/year=2026/month=02/<day>-<first>-<last>-<hash>.parquet

Files never change. A day that got more rows is written again to new files, and the next run removes
the former files, when nobody reads them any more.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, NamedTuple

from appliance.shared.exported_logs import LOGS
from spark import segments
from spark.errors import SegmentTorn
from spark.files import remove_folder, writable, write_whole
from spark.jobs.delivery.plan import day_of
from spark.locations import Location, location
from spark.request import JobRequest
from spark.segments import SegmentFile

CATALOGUE = "catalogue.json"
SCHEMA_VERSION = 1
Entry = dict[str, Any]


class PendingLog(NamedTuple):
    """What a run adds to one log's archive.

    segments  all exported segments before the day
    new       segments that the archive does not have
    days      the new segments' days, which are written again as a whole
    """

    log: str
    segments: list[SegmentFile]
    new: list[SegmentFile]
    days: set[str]


def read(out: Location) -> Entry:
    """Return the catalogue, or an empty one for a new archive."""
    path = out / CATALOGUE
    if not path.exists():
        return {"schema_version": SCHEMA_VERSION, "kind": "archive", "logs": {}}
    catalogue = segments.read_json(path, "archive")
    if not isinstance(catalogue.get("logs"), dict):
        raise SegmentTorn(f"{path} is truncated or malformed")
    return catalogue


def write(out: Location, catalogue: Entry) -> None:
    with writable(out):
        write_whole(out / CATALOGUE, json.dumps(catalogue, indent=1))


def up_to_date(request: JobRequest) -> bool:
    """Return whether the archive has every segment before the day and lists every restore."""
    catalogue = read(request.out)
    if not catalogue["logs"]:
        return False
    return not any(
        log.new or cuts_of(request, log.log, catalogue) != part(catalogue, log.log, "cuts")
        for log in pending(request, catalogue)
    )


def pending(request: JobRequest, catalogue: Entry) -> list[PendingLog]:
    """Return the logs with segments below the source."""
    before = str(request.options["before"])
    logs = []
    for log in LOGS:
        if not (request.source / log).is_dir():
            continue
        old = [
            segment
            for segment in segments.manifests(request.source, log)
            if day_of(segment) < before
        ]
        known = {entry["sha256"] for entry in part(catalogue, log, "segments")}
        new = [segment for segment in old if segment.sha256 not in known]
        logs.append(PendingLog(log, old, new, {day_of(segment) for segment in new}))
    return logs


def part(catalogue: Mapping[str, Any], log: str, name: str) -> list[Any]:
    """Return a log's `segments`, `files` or `cuts`."""
    return list(catalogue["logs"].get(log, {}).get(name, []))


def with_new(former: Iterable[Entry], new: Iterable[SegmentFile]) -> list[Entry]:
    """Return the archived segments, without any that a new segment replaces."""
    added = list(new)
    replaced = {f"{segment.epoch}/{stem}" for segment in added for stem in segment.replaces}
    kept = [entry for entry in former if name_of(entry) not in replaced]
    return sorted([*kept, *map(entry_of, added)], key=lambda entry: entry["first_event_id"])


def entry_of(segment: SegmentFile) -> Entry:
    entry = {name: getattr(segment, field) for name, field in segments.FIELDS.items()}
    return {"date": day_of(segment), **entry}


def name_of(entry: Mapping[str, Any]) -> str:
    stem = f"segment-{entry['first_event_id']:020d}-{entry['last_event_id']:020d}"
    return f"{entry['epoch']}/{stem}"


def cuts_of(request: JobRequest, log: str, catalogue: Entry) -> list[list[Any]]:
    """Return [epoch, last] for each epoch that a restore ended, archived or exported."""
    exported = segments.manifests(request.source, log)
    names = {segment.name for segment in exported}
    former = part(catalogue, log, "segments")
    removed = [_segment(log, entry) for entry in former if name_of(entry) not in names]
    return [list(cut) for cut in segments.epoch_ends([*exported, *removed])]


def gaps_of(request: JobRequest, log: str, entries: Iterable[Entry]) -> list[str]:
    chain = [_segment(log, entry) for entry in entries]
    return segments.gaps(chain, segments.begins_after(request.source, log)) if chain else []


def publish(path: Location, out: Location, log: str, entry: Entry) -> Entry:
    """Move a complete file to its name in the archive and return its whole catalogue entry."""
    day, first, last = entry["date"], entry["first_event_id"], entry["last_event_id"]
    sha256, folder = segments.hash_of(path), folder_of(log, day)
    name = f"{folder}/{day}-{first:020d}-{last:020d}-{sha256[:12]}.parquet"
    with writable(out):
        (out / folder).mkdir(parents=True, exist_ok=True)
        size = path.stat().st_size
        path.replace(out / name)
    return {"file": name, **entry, "bytes": size, "sha256": sha256}


def sweep(out: Location, catalogue: Entry) -> None:
    """Remove files left by killed runs and files for days that were written again."""
    for left in out.glob(".draft-*"):
        remove_folder(left)
    listed = {file["file"] for log in catalogue["logs"] for file in part(catalogue, log, "files")}
    for log in LOGS:
        for path in (out / log).glob("year=*/month=*/*.parquet"):
            if str(path.relative_to(out)) not in listed:
                with writable(out):
                    path.unlink()


def folder_of(log: str, day: str) -> str:
    """Return a day's folder, relative to the archive."""
    parsed = date.fromisoformat(day)
    return f"{log}/year={parsed.year:04d}/month={parsed.month:02d}"


def _segment(log: str, entry: Mapping[str, Any]) -> SegmentFile:
    """Return an archived segment, as far as its place in the log matters."""
    path = location(f"date={entry['date']}/{name_of(entry)}")
    return segments.segment_of(entry, path, path.name, log)
