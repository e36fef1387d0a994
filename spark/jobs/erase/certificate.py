"""Writes an erasure's certificate: files before and after, and that no content is left.

<out>/erasures/<order>/selected.parquet            ids of messages and attachments
<out>/erasures/<order>/certificate-00000001.json   no contents and no names
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from spark import segments
from spark.errors import ChecksFailed, Usage, WrongHash
from spark.files import remove_folder, sync_folder, writable, write_whole
from spark.jobs.erase import bronze, lake, schema
from spark.jobs.erase.order import ErasureOrder
from spark.jobs.erase.swap import ErasePlan, SegmentChange
from spark.locations import Location
from spark.request import JobRequest
from spark.segments import EVENTS

BYTES_MAX = 64 * 1024 * 1024
SELECTED = "selected.parquet"
WORKSPACE = (
    ".agentlip/*.lost-*, .agentlip/audit.sqlite3, .agentlip/backups/, "
    ".agentlip/broker.sqlite3, .agentlip/courier.sqlite3, .agentlip/db.sqlite3, "
    ".agentlip/gold/, .agentlip/inbox.sqlite3, .agentlip/jobs/, .agentlip/jobs.sqlite3, "
    ".agentlip/logs/, .agentlip/network/*/state.sqlite3, .agentlip/network.copied/, "
    ".agentlip/notify.json, .agentlip/outbox.sqlite3, .agentlip/relay-v1/, "
    ".agentlip/relay.sqlite3, .agentlip/repairs/, "
    ".agentlip/restore/, .worker-state/blobs/sha256-*, .worker-state/bus.db, "
    ".worker-state/bus.jsonl, worktrees/"
)
NOT_REACHED = (
    "the hub's database: delete the messages there first; it keeps the text of earlier events",
    "archives: run the job archive again after the erasure, into a new directory",
    "backups of the appliance, and copies of segments, tables or reports in other directories",
    "other texts that quote a message or name a sender; titles of topics and names of channels",
    "blocks that a file system, an SSD or a snapshot of a volume keeps after a file is removed",
    "files below the output and the segments that are of no job, such as files of changes",
    f"files of the workspace that can quote a message or name a sender: {WORKSPACE}",
    "former versions of objects in a bucket with versioning: delete them, docs/how-to/erase.md",
)
# What the other logs have: an order selects nothing in them, because their ids are their own.
OTHER_LOGS = {
    "relay": "names of agents", "audit": "actors and details, in a chain of hashes",
    "broker": "keys of members, errors", "bus": "payloads, names of agents",
    "courier": "errors", "inbox": "keys of senders", "outbox": "principals, errors",
    "runs": "errors",
}  # fmt: skip


def folder_of(request: JobRequest, order: ErasureOrder) -> Location:
    return request.out / "erasures" / order.sha256[:16]


def read_selected(request: JobRequest, folder: Location) -> DataFrame:
    """Return what the order's former runs selected."""
    path = folder / SELECTED
    if not path.exists():
        return request.spark.createDataFrame([], schema.SELECTED)
    return request.spark.read.schema(schema.SELECTED).parquet(str(path))


def remember(request: JobRequest, folder: Location, chosen: DataFrame) -> DataFrame:
    """Store the selection: after senders are renamed it can't be computed again."""
    draft = folder / ".selected"
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        chosen.orderBy("kind", "id").coalesce(1).write.mode("overwrite").parquet(str(draft))
        (file,) = draft.glob("part-*.parquet")
        file.replace(folder / SELECTED)
        remove_folder(draft)
        sync_folder(folder)
    return read_selected(request, folder)


def certificates(folder: Location) -> list[Location]:
    return sorted(folder.glob("certificate-????????.json"))


def write(
    request: JobRequest, order: ErasureOrder, chosen: DataFrame, plan: ErasePlan,
    changed: dict[str, Any],
) -> Location:  # fmt: skip
    """Write the certificate, after the files are compared with the plan. `changed`: its fields
    about silver and gold."""
    folder = folder_of(request, order)
    left = require_erased(request, order, chosen, plan.changes)
    fields = {
        "schema": schema.CERTIFICATE,
        "order_sha256": order.sha256,
        "reference": order.reference,
        "made_at": request.now.isoformat(),
        "selected": count(chosen)
        | {"file": SELECTED, "sha256": segments.hash_of(folder / SELECTED)},
        "segments": [change._asdict() for change in plan.changes],
        "snapshots_removed": list(plan.snapshots),
        **changed,
        "content_left": left,
        "not_reached": [*NOT_REACHED, *map(partial(_other_log, request), OTHER_LOGS)],
    }
    path = folder / f"certificate-{len(certificates(folder)) + 1:08d}.json"
    with writable(folder):
        write_whole(path, json.dumps(fields, indent=1) + "\n")
    return path


def _other_log(request: JobRequest, log: str) -> str:
    held = bronze.every(request.source / log, log).values()
    rows = sum(segment.rows for segment in held)
    return f"the log {log} ({OTHER_LOGS[log]}): {len(held):,} segments, {rows:,} rows"


def count(chosen: DataFrame) -> dict[str, int]:
    counts = {row["kind"]: row["count"] for row in chosen.groupBy("kind").count().collect()}
    return {f"{kind}s": counts.get(kind, 0) for kind in (schema.MESSAGE, schema.ATTACHMENT)}


def require_erased(
    request: JobRequest, order: ErasureOrder, chosen: DataFrame, changes: Sequence[SegmentChange]
) -> dict[str, int]:
    """Verify all segments, compare the changed ones with the certificate, and count rows with
    content, by table. Raises an error for the first difference, and ChecksFailed for content."""
    held = bronze.every(request.source / EVENTS)
    for change in changes:
        segment = held.get(change.file.rpartition("/")[2])
        if segment is not None and segment.sha256 != change.after:
            raise WrongHash(
                f"{change.file} differs from the certificate",
                "a later erasure has its own certificate; otherwise restore the file from a copy",
            )
    left = {"segments": bronze.with_content(request, held, chosen, order).count()}
    left |= {f"silver.{table}": 0 for table in schema.IDS}
    for table, rows in lake.by_table(lake.contents(request, order, chosen)).items():
        left[f"silver.{table}"] = rows
    if any(left.values()):
        raise ChecksFailed(
            f"content of the order is left or there again: {json.dumps(left)}",
            "run the erasure with the same order again",
        )
    return left


def verify(request: JobRequest, path: Location) -> dict[str, int]:
    """Compare the files with a certificate again and raise an error for the first difference."""
    try:
        with path.open("rb") as opened:
            fields = json.loads(opened.read(BYTES_MAX))
        if fields["schema"] != schema.CERTIFICATE:
            raise ValueError
        names = SegmentChange._fields
        changes = [SegmentChange(*[each[name] for name in names]) for each in fields["segments"]]
        order = ErasureOrder(schema_version=1, sha256=fields["order_sha256"])
        sha256 = fields["selected"]["sha256"]
    except OSError as error:
        raise Usage(f"the certificate {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise Usage(f"{path} is not a certificate of an erasure") from None
    file = path.with_name(SELECTED)
    if not file.is_file() or segments.hash_of(file) != sha256:
        raise WrongHash(f"{file} is missing or is not the one of the certificate", "copy it")
    chosen = read_selected(request, path.parent)
    require_erased(request, order, chosen, changes)
    there = sum((request.source / EVENTS / change.file).exists() for change in changes)
    return {"segments": there, "gone": len(changes) - there, **count(chosen)}
