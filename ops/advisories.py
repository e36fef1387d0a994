"""Compares the pinned dependencies with known advisories: `python -m ops.advisories FOLDER`.

FOLDER has records in the OSV format as JSON files, as the databases of Python advisories publish
them (`PYSEC-*.json`, `GHSA-*.json`). Nothing is downloaded, so the result is as old as the folder;
it names the newest record. Exit code 1 if a pinned version is affected, 2 if nothing was compared.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"(?m)^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)")


def pinned(folder: Path) -> set[tuple[str, str]]:
    """Return each dependency's name and version from the lock files."""
    return {
        (canonicalize_name(name), version)
        for file in folder.glob("*.txt")
        for name, version in PIN.findall(file.read_text("utf-8"))
    }


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records that are not withdrawn. Raises ValueError for a file that is not JSON."""
    for file in sorted(folder.rglob("*.json")):
        record = json.loads(file.read_text("utf-8"))
        if isinstance(record, dict) and "affected" in record and not record.get("withdrawn"):
            yield record


def is_affected(record: dict[str, Any], name: str, version: str) -> bool:
    """Return whether a record affects a version. A version that can't be compared counts as
    affected, because a person has to decide."""
    for affected in record["affected"]:
        package = affected.get("package", {})
        if package.get("ecosystem") != "PyPI" or canonicalize_name(package["name"]) != name:
            continue
        ranges = [row["events"] for row in affected.get("ranges", ()) if row["type"] == "ECOSYSTEM"]
        if version in affected.get("versions", ()) or any(_is_in(row, version) for row in ranges):
            return True
    return False


def _is_in(events: list[dict[str, str]], version: str) -> bool:
    inside = False
    try:
        wanted = Version(version)
        for event in events:
            if "introduced" in event:
                inside |= wanted >= Version(event["introduced"])
            elif ("fixed" in event and wanted >= Version(event["fixed"])) or (
                "last_affected" in event and wanted > Version(event["last_affected"])
            ):
                inside = False
    except InvalidVersion:
        return True
    return inside


def main(arguments: list[str]) -> int:
    pins, known = pinned(ROOT / "requirements"), list(records(Path(*arguments)))
    if not pins or not known:
        print(f"ops/advisories: {len(pins)} pins and {len(known)} records: nothing was compared")
        return 2
    hits = 0
    for name, version in sorted(pins):
        for record in known:
            if is_affected(record, name, version):
                hits += 1
                print(f"{name}=={version}: {record['id']} {record.get('summary', '')}".rstrip())
    newest = max(str(record.get("modified", "")) for record in known)
    print(f"{len(pins)} pins, {len(known)} records, the newest of {newest}: {hits} affected")
    return int(bool(hits))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
