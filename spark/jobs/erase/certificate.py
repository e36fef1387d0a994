"""The certificate of an erasure: files before and after, digests of what stayed, what is left.

<out>/erasures/<order>/selected.parquet            ids of messages and attachments
<out>/erasures/<order>/certificate-00000001.json   no contents and no names
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from spark import segments
from spark.errors import ChecksFailed, Usage, WrongHash
from spark.files import sync_folder, writable, write_whole
from spark.jobs.erase import bronze, lake, schema, swap
from spark.jobs.erase.order import ErasureOrder
from spark.jobs.erase.payload import MARKER
from spark.jobs.erase.rewrite import TEMPORARY
from spark.jobs.ingest.job import silver
from spark.request import JobRequest
from spark.segments import SegmentFile

BYTES_MAX = 64 * 1024 * 1024
SELECTED = "selected.parquet"
NOT_REACHED = (
    "the hub's database: delete the messages there first; it keeps the text of earlier events",
    "archives: run the job archive again after the erasure, into a new directory",
    "backups of the appliance, and copies of segments, tables or reports in other directories",
    "other texts that quote a message or name a sender; titles of topics and names of channels",
    "blocks that a file system, an SSD or a snapshot of a volume keeps after a file is removed",
)


class Work:
    """The folder of an order below the output."""

    def __init__(self, ask: JobRequest, order: ErasureOrder) -> None:
        self.folder = ask.out / "erasures" / order.sha256[:16]
        self.selected = self.folder / SELECTED

    def certificates(self) -> list[Path]:
        return sorted(self.folder.glob("certificate-????????.json"))

    def remember(self, ask: JobRequest, chosen: DataFrame) -> DataFrame:
        """Store the selection: after senders are renamed it can't be computed again."""
        spark, draft = ask.spark, self.folder / ".selected"
        if self.selected.exists():
            chosen = chosen.unionByName(spark.read.parquet(str(self.selected)))
        with writable(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        rows = chosen.distinct().orderBy("kind", "id").coalesce(1)
        rows.write.mode("overwrite").parquet(str(draft))
        (file,) = draft.glob("part-*.parquet")
        with writable(self.folder):
            file.replace(self.selected)
            sync_folder(self.folder)
            for left in draft.iterdir():
                left.unlink()
            draft.rmdir()
        return spark.read.schema(schema.SELECTED).parquet(str(self.selected))

    def write(self, fields: dict[str, Any]) -> Path:
        path = self.folder / f"certificate-{len(self.certificates()) + 1:08d}.json"
        with writable(self.folder):
            write_whole(path, json.dumps(fields, indent=1) + "\n", TEMPORARY)
        return path


def compose(
    ask: JobRequest, order: ErasureOrder, work: Work, chosen: DataFrame,
    plan: swap.ErasePlan, tables: lake.SilverErasure | None, gold: dict[str, list[str]],
) -> dict[str, Any]:  # fmt: skip
    """The certificate, after the files are compared with the plan again."""
    held = bronze.every(ask.source / "events")
    changed = {Path(change.file).name: change for change in plan.changes}
    segment_changes = prove(ask, held, chosen, plan)
    left = content_left(ask, list(held.values()), chosen, order)
    if any(left.values()):
        raise ChecksFailed(f"content is left after the erasure: {json.dumps(left)}")
    others = [segment for name, segment in held.items() if name not in changed]
    orphans = bronze.orphans(ask.source / "events")
    counts = {row["kind"]: row["count"] for row in chosen.groupBy("kind").count().collect()}
    return {
        "schema": schema.CERTIFICATE,
        "order_sha256": order.sha256,
        "reference": order.reference,
        "made_at": ask.now.isoformat(),
        "marker": MARKER,
        "senders_replaced": order.sender_becomes is not None,
        "selected": {
            "messages": counts.get(schema.MESSAGE, 0),
            "attachments": counts.get(schema.ATTACHMENT, 0),
            "file": SELECTED,
            "sha256": segments.hash_of(work.selected),
        },
        "segments": segment_changes,
        "other_segments": {"count": len(others), "sha256": inventory(others)},
        "snapshots_removed": list(plan.snapshots),
        "silver": None if tables is None else tables._asdict(),
        "gold": gold,
        "content_left": left,
        "not_reached": [
            *NOT_REACHED,
            *[f"below the output: {name}" for name in lake.unreached(ask)[: schema.LISTED_MAX]],
            *[f"a file without manifest: {name}" for name in orphans[: schema.LISTED_MAX]],
        ],
    }


def prove(
    ask: JobRequest, held: dict[str, SegmentFile], chosen: DataFrame, plan: swap.ErasePlan
) -> list[dict[str, Any]]:
    """The digests of all other rows, read from the new files; they must not have changed."""
    names = [Path(change.file).name for change in plan.changes]
    there = [held[name] for name in names if name in held]
    after = bronze.digests(ask.spark, there, chosen) if there else {}
    changes = []
    for change in plan.changes:
        fields = change._asdict()
        digest = after.get(Path(change.file).name)
        fields["there"] = digest is not None  # else a compaction or the retention removed it
        for name in ("untouched", "envelopes"):
            del fields[name]
            fields[f"{name}_before"] = getattr(change, name)
            fields[f"{name}_after"] = digest and digest[name]
        changed = digest and (digest["rows"], digest["untouched"], digest["envelopes"]) != (
            change.rows, change.untouched, change.envelopes,
        )  # fmt: skip
        if changed:
            raise ChecksFailed(f"{change.file} differs from what it replaced in other rows")
        changes.append(fields)
    return changes


def content_left(
    ask: JobRequest, some: list[SegmentFile], chosen: DataFrame, order: ErasureOrder
) -> dict[str, int]:
    """The number of rows with content of the selection, in segments and in tables of silver."""
    people = (order.senders, order.sender_becomes)
    left = {"segments": sum(bronze.left(ask.spark, some, chosen, *people).values())}
    version = silver(ask.out).current()
    if version is not None:
        rows = lake.content(ask, version, order, chosen)
        left |= {f"silver.{table}": rows.get(table, 0) for table in schema.IDS}
    return left


def inventory(some: list[SegmentFile]) -> str:
    """Verify these files; returns the digest of their names and hashes."""
    digest = hashlib.sha256()
    for segment in sorted(some, key=lambda line: line.name):
        segments.verify_file(segment.path, segment.bytes, segment.sha256)
        digest.update(f"{segment.name} {segment.sha256}\n".encode())
    return digest.hexdigest()


def verify(ask: JobRequest, path: Path) -> dict[str, int]:
    """Compare the files with a certificate again. Raises an error for the first difference."""
    fields = _read(path)
    selected = path.with_name(SELECTED)
    if not selected.is_file() or segments.hash_of(selected) != fields["selected"]["sha256"]:
        raise WrongHash(f"{selected} is missing or is not the one of the certificate", "copy it")
    chosen = ask.spark.read.schema(schema.SELECTED).parquet(str(selected))
    held = bronze.every(ask.source / "events")
    there = [change for change in fields["segments"] if Path(change["file"]).name in held]
    digests = bronze.digests(
        ask.spark, [held[Path(change["file"]).name] for change in there], chosen
    ) if there else {}  # fmt: skip
    for change in there:
        segment, digest = held[Path(change["file"]).name], digests[Path(change["file"]).name]
        segments.verify_file(segment.path, segment.bytes, segment.sha256)
        now = (segment.sha256, digest["untouched"], digest["envelopes"])
        if now != (change["after"], change["untouched_after"], change["envelopes_after"]):
            raise WrongHash(
                f"{change['file']} differs from the certificate",
                "a later erasure has its own certificate; otherwise restore the file from a copy",
            )
    order = ErasureOrder(fields["order_sha256"], "")
    left = content_left(ask, list(held.values()), chosen, order)
    if any(left.values()):
        raise ChecksFailed(
            f"content of the order is there again: {json.dumps(left)}",
            "run the erasure with the same order again",
        )
    return {
        "segments": len(there),
        "gone": len(fields["segments"]) - len(there),
        "messages": fields["selected"]["messages"],
        "attachments": fields["selected"]["attachments"],
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            fields: dict[str, Any] = json.loads(file.read(BYTES_MAX))
        named = [str(change["file"]) for change in fields["segments"]]
        sound = fields["schema"] == schema.CERTIFICATE and isinstance(fields["order_sha256"], str)
        if not sound or any(not name for name in named):
            raise ValueError
        for name in ("sha256", "messages", "attachments"):
            fields["selected"][name]
    except OSError as error:
        raise Usage(f"the certificate {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Usage(f"{path} is not a certificate of an erasure") from None
    return fields
