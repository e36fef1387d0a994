"""Ingests new segments, each once, and publishes a version.

The run's row has the ranges of ingested events, so tables and segments always agree. A run reads
and writes only days that have new events, or messages with new events. `changed_days` in a run's
checkpoint lists the days that changed, for jobs that read the tables.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark import checks, segments, source, verification
from spark.checks import TableCheck
from spark.jobs.ingest import schema
from spark.jobs.ingest import transforms as t
from spark.locations import Location
from spark.request import JobReport, JobRequest
from spark.results import ERROR, SEGMENTS_SOUND, WARN, CheckResult, warn_of
from spark.tables import Dataset, Draft, Version
from spark.taken import TakenSegments

CHANGED_MAX = 1_000_000  # changes whose id hashes fit into a job with 1 GB
IDS_MAX = 100_000  # changed ids that are compared with the ranges of files
FEW_MAX = 100_000  # rows that one task takes, without a shuffle
EVENT = ("epoch", "event_id")
WITH_DOUBT = {"quarantine": "rows.valid", "unknown_events": "events.known"}  # table: its check
CHECKS = (
    TableCheck("messages.version", "messages", ERROR, "version < 1"),
    TableCheck("messages.event", "messages", ERROR, "event_id < 1"),
    TableCheck("messages.once", "messages", ERROR, unique=EVENT),
    TableCheck("messages.sender", "messages", WARN, "sender IS NULL"),
    TableCheck("messages.topic", "messages", WARN, refers=("topic_id", "topics")),
    TableCheck("topics.once", "topics", ERROR, unique=EVENT),
    TableCheck("topics.channel", "topics", WARN, refers=("channel_id", "channels")),
    TableCheck("channels.once", "channels", ERROR, unique=EVENT),
)


def silver(out: Location) -> Dataset:
    return Dataset(out / "silver", schema.NAME)


def run(request: JobRequest) -> JobReport:
    dataset = silver(request.out)
    merge = Merge(request, dataset, dataset.current())
    merge.publish()
    return JobReport(merge.counts, merge.results, merge.published)


class Merge:
    """Merges new segments with the former version into the next version."""

    def __init__(self, request: JobRequest, dataset: Dataset, former: Version | None) -> None:
        self.request = request
        self.spark = request.spark
        self.dataset = dataset
        self.former = former
        self.checkpoint: dict[str, Any] = {
            "newest": {}, "epoch_ends": {}, "changed_days": {}, "skipped": {},
            **(former.checkpoint if former else {}),
        }  # fmt: skip
        self.taken = TakenSegments(self.checkpoint)
        self.export = verification.read_export(request, self.checkpoint)
        self.ends = _ends(self.checkpoint["epoch_ends"], segments.epoch_ends(self.export.segments))
        self.new_ends = [
            cut for cut in self.ends if self.checkpoint["epoch_ends"].get(cut.epoch) != cut.last
        ]
        self.fresh: list[segments.SegmentFile] = []  # without those that contain nothing new
        self.seen: dict[str, int] = {}  # the counts of their events
        self.added: dict[str, tuple[str, ...]] = {}
        self.is_plain = False  # no payload has control characters
        self.published: str | None = None
        self.counts: dict[str, Any] = {"segments": 0}
        self.results: list[CheckResult] = []

    def publish(self) -> None:
        """Publish a version with the new segments, unless there is nothing to ingest or skip."""
        self.fresh = self._verify(
            [segment for segment in self.export.segments if segment not in self.taken]
        )
        skipped = verification.list_skipped(self.request, self.export.bad)
        compared = self.taken.has_compared(self.export.segments)
        if not self.fresh and compared and skipped == self.checkpoint["skipped"]:
            return
        overlaps = verification.disagreements(self.request, self.export.segments, self.export.bad)
        self.results.append(overlaps)
        draft = self.dataset.draft()
        if self.fresh:
            self._write_tables(draft)
        newest = dict(self.checkpoint["newest"])
        for segment in self.fresh:
            newest[segment.epoch] = max(segment.last, newest.get(segment.epoch, 0))
        self.checkpoint |= self.taken.remember(self.export.segments)
        self.checkpoint |= {"newest": newest, "skipped": skipped}
        self.checkpoint["warnings"] = [result for result in self.results if result.failed]
        self.published = self.request.commit(self.dataset, draft, self.checkpoint).root
        self.counts["segments"] += len(self.fresh)

    def _verify(self, new: Sequence[segments.SegmentFile]) -> list[segments.SegmentFile]:
        """Return the segments that are sound. Bad segments are an error, or skipped."""
        bad = self.export.bad
        with self.request.progress.step(self.spark, "ingest: verifying"):
            unknown = [segment for segment in new if segment.manifest not in bad]
            facts = verification.verify(self.request, unknown, bad)
        self.added = {name: fact.added for name, fact in facts.items() if fact.added}
        self.is_plain = all(fact.is_plain for fact in facts.values())
        sound = [segment for segment in new if segment.manifest not in bad]
        self.taken.add(sound, facts)
        chain = verification.count_once(self.export.segments, self.taken.lacking)
        problems = {
            SEGMENTS_SOUND: [error.message for error in bad.values()],
            "segments.gaps": segments.gaps(chain, segments.begins_after(self.request.source)),
            "segments.columns": verification.added_columns(new, facts),
        }
        self.results += [warn_of(name, "segments", some) for name, some in problems.items()]
        self.counts["skipped_segments"] = len(bad)
        return sound

    def _write_tables(self, draft: Draft) -> None:
        step = partial(self.request.progress.step, self.spark)
        self.request.size_shuffles(sum(segment.bytes for segment in self.fresh))
        read = source.read(self.spark, self.fresh, added=self.added)
        events = source.drop_undone(read, self.ends)
        with step("ingest: counting"):
            rows = _gather(events, sum(segment.rows for segment in self.fresh))
            seen = self.seen = t.summarize(rows).first().asDict()
        # The smaller tables are mostly planning, which leaves the cores to the messages.
        with step("ingest: tables"), ThreadPoolExecutor(1) as beside:
            others = beside.submit(self._others, draft, events)
            changed = t.events_of_changed(events, creations=not self._is_in_order())
            marks = self._marks(changed)
            bad = self._messages(draft, events, changed, marks)
            bad_others, checked_others = others.result()
            counts = {"quarantine": self._quarantine(draft, events, bad + bad_others)}
        with step("ingest: checks"):
            checked, days = self._check(draft, marks)
            counts["unknown_fields"] = self._remember(draft, days)
            self.results += [*checked, *checked_others]
            checks.require_passed(self.results, self.request.progress)
        new = seen if self._is_in_order() else t.summarize(self._new(events)).first().asDict()
        counts |= {name: new[name] for name in (*t.SMALL, "unknown_events")}
        counts["rows"] = new["distinct"]
        counts["duplicates"] = seen["rows"] - new["distinct"]
        for table, name in WITH_DOUBT.items():
            self.results.append(CheckResult(name, table, WARN, counts[table], seen["rows"]))
        self.counts |= counts

    def _new(self, events: DataFrame) -> DataFrame:
        """Return the events that the former version does not have."""
        if self.former is None:
            return events
        rows = [self.former.read(self.spark, table) for table in schema.OUTPUT]
        ids = [frame.where(_is_within(self.fresh)).select(*EVENT) for frame in rows]
        return events.join(reduce(DataFrame.unionByName, ids), [*EVENT], "left_anti")

    # -- messages ------------------------------------------------------------------------

    def _marks(self, changed: DataFrame) -> DataFrame:
        """Return the id hashes for messages whose history changes; hashes may repeat."""
        marks = changed.select(t.id_hash("entity_id"))
        if self.former is not None and self.new_ends:
            rows = self.former.read(self.spark, "messages")
            undone = source.undone(rows, self.new_ends)
            marks = marks.unionByName(undone.select(t.id_hash("message_id")))
        return marks

    def _messages(
        self, draft: Draft, events: DataFrame, changed: DataFrame, marks: DataFrame
    ) -> int:
        """Write the messages and return the bad-row count. Only messages that change go
        through the window; other creations are written directly. If events may be duplicated or
        late, all new messages go through the window."""
        seen = self.seen
        straight = seen["changes"] <= CHANGED_MAX and self._is_straight()
        rest, frames = events, []
        if straight:  # a broadcast: otherwise Spark might sort all events
            marks = f.broadcast(marks)
            marked = events.withColumn("id_hash", t.id_hash("entity_id"))
            created = t.creations_of(marked).join(marks, "id_hash", "left_anti")
            frames.append(
                t.first_states(t.changes(t.messages_of(created, self.is_plain)).where("sound"))
            )
            rest = marked.join(marks, "id_hash", "left_semi")
        changes = t.changes(t.messages_of(rest))
        rows = self._rows_of("messages", changed.selectExpr("entity_id AS message_id"))
        days = self._partitions_in("messages", rows)
        bad = 0 if straight else changes.where("NOT sound").count()
        changes = changes.where("sound").drop("sound")
        if rows is not None:
            changes = changes.unionByName(t.facts(source.drop_undone(rows, self.ends)))
        frames.append(t.history(changes, unique=straight))
        made = reduce(DataFrame.unionByName, frames)
        draft.merge(made, "messages", days, self._undone("messages"))
        return self._lacking(draft, "messages") if straight else bad

    def _is_straight(self) -> bool:
        """Return whether each event is new and occurs once, so each sound event is one row."""
        once = self.seen["distinct"] == self.seen["rows"]
        return once and self._is_in_order() and not self.new_ends

    def _is_in_order(self) -> bool:
        """Return whether all segments are newer than the ingested segments, so every creation is
        new."""
        newest = self.checkpoint["newest"]
        return all(segment.first > newest.get(segment.epoch, 0) for segment in self.fresh)

    def _undone(self, table: str) -> DataFrame | None:
        """Return the former version's rows that a restore discarded since then."""
        if self.former is None or not self.new_ends:
            return None
        return source.undone(self.former.read(self.spark, table), self.new_ends)

    def _rows_of(self, table: str, ids: DataFrame) -> DataFrame | None:
        """Return the former version's rows with these ids, or with discarded rows' ids. Only
        files whose range has such an id are read."""
        if self.former is None:
            return None
        (column,), parts, undone = ids.columns, None, self._undone(table)
        if undone is not None:
            ids = ids.unionByName(undone.select(column))
        else:
            wanted = ids.distinct().limit(IDS_MAX + 1).collect()
            if len(wanted) <= IDS_MAX:
                parts = self.former.parts_with(table, {row[column] for row in wanted})
        if parts == set():
            return None
        return self.former.read(self.spark, table, parts).join(ids, column, "left_semi")

    def _partitions_in(self, table: str, rows: DataFrame | None) -> set[str]:
        """Return the partitions with these rows; "" is an unpartitioned table."""
        column = schema.PARTITIONS[table]
        if rows is None or column is None:
            return {""} if rows is not None and not rows.isEmpty() else set()
        values = rows.select(f.col(column).cast("string").alias("part")).distinct().collect()
        return {row["part"] for row in values}

    def _remember(self, draft: Draft, days: dict[str, int]) -> int:
        """Record the days on which a message changed in this version. Return how many rows of
        changed messages have unknown fields."""
        changed = dict.fromkeys(sorted(days), draft.number)
        self.checkpoint |= {
            "changed_days": dict(sorted({**self.checkpoint["changed_days"], **changed}.items())),
            "epoch_ends": {cut.epoch: cut.last for cut in self.ends},
        }
        return sum(days.values())

    def _count_changed_days(self, draft: Draft, marks: DataFrame) -> dict[str, int]:
        """Map the days on which a message changed to the number of rows with unknown fields."""
        in_order, more, none = self._is_in_order(), f.expr("extra IS NOT NULL"), f.lit(False)
        written, rows = draft.written(self.spark, "messages"), []
        if in_order:
            rows.append((written.where(~_is_known(self.checkpoint["newest"])), more))
        if not in_order or self.new_ends:
            rows.append((t.mark(written, marks), none if in_order else more))
        if self.former is not None and self.new_ends:  # the discarded rows are not in the draft
            rows.append((t.mark(self.former.read(self.spark, "messages"), marks), none))
        frames = [
            frame.select(f.expr("to_date(valid_from) AS day"), has_more.alias("more"))
            for frame, has_more in rows
        ]
        days = reduce(DataFrame.unionByName, frames).groupBy("day")
        counted = days.agg(f.expr("count_if(more) AS n")).collect()
        return {row["day"].isoformat(): row["n"] for row in counted}

    # -- the rest ------------------------------------------------------------------------

    def _others(self, draft: Draft, events: DataFrame) -> tuple[int, list[CheckResult]]:
        """Merge the new rows into the smaller tables, and check the tables, a few at a time,
        because planning takes longest. Return the bad-row count."""
        seen, bad, parsed = self.seen, self.seen["bad_envelopes"], None
        some = [table for table in t.SMALL if seen[table]]
        count = sum(seen[table] for table in some)
        # Each sound event is one row, unless an event has several enrichments.
        is_row = self._is_straight() and not seen["enrichments"]
        if some and not is_row:
            parsed = self._parsed(events, count, some).persist()
            sound = t.is_sound(schema.OTHERS)
            bad += parsed.where(f"NOT {sound}").count()
        unknown = t.unknown_of(events) if seen["unknown_events"] else None
        with ThreadPoolExecutor(checks.CONCURRENT_QUERIES_MAX) as pool:
            writes = [pool.submit(self._small, draft, "unknown_events", unknown, t.UNKNOWN)]
            for table, small in t.SMALL.items():
                new = None
                if table in some:
                    rows = self._parsed(events, count, [table]) if parsed is None else parsed
                    new = small.new(rows.where(t.is_sound(small.names)))
                writes.append(pool.submit(self._small, draft, table, new, small))
            for written in writes:
                written.result()
        if is_row:
            bad += sum(self._lacking(draft, table) for table in some)
        if parsed is not None:
            parsed.unpersist()
        files_of = draft.files if self.new_ends else draft.written_files
        mine = [check for check in CHECKS if check.table != "messages"]
        return bad, checks.run_here(mine, files_of, draft.files)

    def _parsed(self, events: DataFrame, count: int, tables: Sequence[str]) -> DataFrame:
        """Parse these tables' events; Parquet skips what lies between them."""
        parsed = t.others_of(events, [name for table in tables for name in t.SMALL[table].names])
        return _gather(parsed, count)

    def _lacking(self, draft: Draft, table: str) -> int:
        """Return how many of the table's events are not rows, because they are bad."""
        former = self.former.count(table) if self.former else 0
        return int(self.seen[table] - (draft.count(table) - former))

    def _quarantine(self, draft: Draft, events: DataFrame, bad: int) -> int:
        """Write the bad rows; return how many differ."""
        rows = t.quarantine_of(events) if bad else None
        self._small(draft, "quarantine", rows, t.QUARANTINE)
        return 0 if rows is None else rows.count()

    def _small(self, draft: Draft, table: str, new: DataFrame | None, small: t.Small) -> None:
        rows, undone = None, self._undone(table)
        some = undone if new is None else new
        if some is None:
            return
        if undone is not None or small.entity != "event_id" or not self._is_in_order():
            rows = self._rows_of(table, some.select(small.entity))
        if parts := self._partitions_in(table, rows):
            mine = source.drop_undone(rows, self.ends).drop(*small.derived)
            new = mine if new is None else new.unionByName(mine)
        if new is not None:
            made = small.finish(new).select(*schema.OUTPUT[table].names)
            by_day = schema.PARTITIONS[table] == "day"
            made = made.repartition("day") if by_day else made.coalesce(1)
            draft.merge(made, table, parts, undone)

    # -- checks --------------------------------------------------------------------------

    def _check(self, draft: Draft, marks: DataFrame) -> tuple[list[CheckResult], dict[str, int]]:
        """Check the messages in files that this run wrote, because nothing else changed. After a
        restore all rows are checked. After a late event all messages with an event in the
        segment's range are checked, because the event may repeat a message number. Also return
        the number of rows with unknown fields on each changed day."""
        mine = [check for check in CHECKS if check.table == "messages"]
        whole = partial(draft.read, self.spark)
        written = _gather(draft.written(self.spark, "messages"), self.seen["messages"])
        if self._is_straight():  # an event has one time, and so one day
            new = ~_is_known(self.checkpoint["newest"])
            rows = written.withColumns({"new": new, "on": f.to_date("valid_from")})
            more = {"new_rows": "new", "more": "new AND extra IS NOT NULL"}
            checked, days = checks.run_by(mine, rows, whole, ["on"], **more)
            return checked, {row["on"].isoformat(): row["more"] for row in days if row["new_rows"]}
        rows = written if self._is_in_order() else whole("messages").where(_is_within(self.fresh))
        if self.new_ends:
            rows = whole("messages")
        return checks.run(mine, lambda _: rows, whole), self._count_changed_days(draft, marks)


def _ends(former: dict[str, int], ends: Sequence[segments.EpochEnd]) -> list[segments.EpochEnd]:
    """Return the epochs' ends, including the former version's, whose segments may have been
    removed."""
    lasts = dict(former)
    for cut in ends:
        lasts[cut.epoch] = min(cut.last, lasts.get(cut.epoch, cut.last))
    return [segments.EpochEnd(epoch, last) for epoch, last in sorted(lasts.items())]


def _gather(rows: DataFrame, count: int) -> DataFrame:
    """Read few rows in one task, whose sums need no shuffle."""
    return rows.coalesce(1) if count <= FEW_MAX else rows


def _is_known(newest: dict[str, int]) -> Column:
    known = f.lit(False)
    for epoch, last in newest.items():
        known = known | ((f.col("epoch") == epoch) & (f.col("event_id") <= last))
    return known


def _is_within(fresh: Sequence[segments.SegmentFile]) -> Column:
    """Return whether a row is between these segments' first and last event, by epoch."""
    within = f.lit(False)
    for epoch in sorted({segment.epoch for segment in fresh}):
        mine = [segment for segment in fresh if segment.epoch == epoch]
        low, high = min(result.first for result in mine), max(result.last for result in mine)
        within = within | ((f.col("epoch") == epoch) & f.col("event_id").between(low, high))
    return within
