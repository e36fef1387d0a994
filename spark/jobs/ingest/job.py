"""Ingests new segments, each once, and publishes a version.

The row of a run lists its segments, so tables and segments always agree. A run reads and writes
only days that have new events, or messages with new events. `touched` in the memory of a run lists
the days that changed, for the jobs that read them.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from spark import checks, segments, source, verification
from spark.checks import TableCheck
from spark.jobs.ingest import schema
from spark.jobs.ingest import transforms as t
from spark.locations import Location
from spark.request import JobReport, JobRequest
from spark.results import ERROR, SEGMENTS_SOUND, WARN, CheckResult, warn_of
from spark.tables import Dataset, Draft, Version

CHANGED_MAX = 1_000_000  # changes whose id hashes fit into a job with 1 GB
IDS_MAX = 100_000  # changed ids that are compared with the ranges of files
FEW_MAX = 100_000  # events of the smaller tables that one task takes, without a shuffle
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


def run(ask: JobRequest) -> JobReport:
    dataset = silver(ask.out)
    merge = Merge(ask, dataset, dataset.current())
    merge.take()
    return JobReport(merge.counts, merge.results, merge.published)


class Merge:
    """Merges new segments with the former version into the next one."""

    def __init__(self, ask: JobRequest, dataset: Dataset, former: Version | None) -> None:
        self.ask = ask
        self.spark = ask.spark
        self.dataset = dataset
        self.former = former
        self.memory: dict[str, Any] = {
            "segments": [], "newest": {}, "cuts": {}, "touched": {}, "skipped": {},
            "ids": {}, **(former.memory if former else {}),
        }  # fmt: skip
        self.export = verification.read_export(ask, self.memory)
        self.cuts = _ends(self.memory["cuts"], segments.cuts(self.export.segments))
        self.new_cuts = [cut for cut in self.cuts if self.memory["cuts"].get(cut.epoch) != cut.last]
        self.fresh: list[segments.SegmentFile] = []  # without those that contain nothing new
        self.seen: dict[str, int] = {}  # the counts of their events
        self.added: dict[str, tuple[str, ...]] = {}
        self.published: str | None = None
        self.counts: dict[str, Any] = {"segments": 0}
        self.results: list[CheckResult] = []

    def take(self) -> None:
        """Publish a version with the new segments, unless there is nothing to take or skip."""
        done = set(self.memory["segments"])
        new = [segment for segment in self.export.segments if segment.name not in done]
        # A compacted segment of ingested segments contains nothing new.
        self.fresh = self._verify(
            [segment for segment in new if not segments.is_covered(segment, done)]
        )
        new = [segment for segment in new if segment.manifest not in self.export.bad]
        skipped = verification.list_skipped(self.ask, self.export.bad)
        if not new and skipped == self.memory["skipped"]:
            return
        draft = self.dataset.draft()
        if self.fresh:
            self._fill(draft)
        newest = dict(self.memory["newest"])
        for segment in new:
            newest[segment.epoch] = max(segment.last, newest.get(segment.epoch, 0))
            done |= {segment.name, *(f"{segment.epoch}/{stem}" for stem in segment.replaces)}
        self.memory |= {"segments": sorted(done), "newest": newest, "skipped": skipped}
        self.memory["warnings"] = [result for result in self.results if result.failed]
        self.published = self.ask.commit(self.dataset, draft, self.memory).root
        self.counts["segments"] += len(self.fresh)

    def _verify(self, new: Sequence[segments.SegmentFile]) -> list[segments.SegmentFile]:
        """The segments that are sound. The others are an error, or skipped."""
        bad = self.export.bad
        with self.ask.progress.step(self.spark, "ingest: verifying"):
            unknown = [segment for segment in new if segment.manifest not in bad]
            facts = verification.verify(self.ask, unknown, bad)
        self.added = {name: fact.added for name, fact in facts.items() if fact.added}
        self.memory["ids"] |= {name: fact.ids for name, fact in facts.items()}
        chain = verification.count_once(self.export.segments, self.memory["ids"])
        problems = {
            SEGMENTS_SOUND: [error.message for error in bad.values()],
            "segments.gaps": segments.gaps(chain, segments.begins_after(self.ask.source)),
            "segments.columns": verification.added_columns(new, facts),
        }
        self.results += [warn_of(name, "segments", some) for name, some in problems.items()]
        self.counts["skipped_segments"] = len(bad)
        return [segment for segment in new if segment.manifest not in bad]

    def _fill(self, draft: Draft) -> None:
        step = partial(self.ask.progress.step, self.spark)
        self.ask.size_shuffles(sum(segment.bytes for segment in self.fresh))
        read = source.read(self.spark, self.fresh, added=self.added)
        events = source.drop_undone(read, self.cuts)
        with step("ingest: counting"):
            seen = self.seen = t.summarize(events).first().asDict()
        # The smaller tables are mostly planning, which leaves the cores to the messages.
        with step("ingest: tables"), ThreadPoolExecutor(1) as beside:
            others = beside.submit(self._others, draft, events)
            changed = t.events_of_changed(events, creations=not self._is_in_order())
            marks = self._marks(changed)
            bad = self._messages(draft, events, changed, marks)
            bad_others, checked_others = others.result()
            counts = {"quarantine": self._quarantine(draft, events, bad + bad_others)}
        with step("ingest: checks"), ThreadPoolExecutor(1) as beside:
            remembered = beside.submit(self._remember, draft, marks)
            checked = self._check(draft, "messages")
            counts["unknown_fields"] = remembered.result()
            self.results += [*checked, *checked_others]
            checks.require_passed(self.results, self.ask.progress)
        new = seen if self._is_in_order() else t.summarize(self._new(events)).first().asDict()
        counts |= {name: new[name] for name in (*t.SMALL, "unknown_events")}
        counts["rows"] = new["distinct"]
        counts["duplicates"] = seen["rows"] - new["distinct"]
        for table, name in WITH_DOUBT.items():
            self.results.append(CheckResult(name, table, WARN, counts[table], seen["rows"]))
        self.counts |= counts

    def _new(self, events: DataFrame) -> DataFrame:
        """The events that the former version does not have."""
        if self.former is None:
            return events
        rows = [self.former.read(self.spark, table) for table in schema.OUTPUT]
        ids = [frame.where(_is_within(self.fresh)).select(*EVENT) for frame in rows]
        return events.join(reduce(DataFrame.unionByName, ids), [*EVENT], "left_anti")

    # -- messages ------------------------------------------------------------------------

    def _marks(self, changed: DataFrame) -> DataFrame:
        """The id hashes of messages whose history changes; they may repeat."""
        marks = changed.select(t.id_hash("entity_id"))
        if self.former is not None and self.new_cuts:
            rows = self.former.read(self.spark, "messages")
            undone = source.undone(rows, self.new_cuts)
            marks = marks.unionByName(undone.select(t.id_hash("message_id")))
        return marks

    def _messages(
        self, draft: Draft, events: DataFrame, changed: DataFrame, marks: DataFrame
    ) -> int:
        """Only messages that change go through the window; other creations are written directly,
        and other rows of a day that is written again are copied. If events may be duplicated or
        late, all new ones go through the window. Returns the number of bad rows."""
        seen = self.seen
        few = seen["changes"] <= CHANGED_MAX and not self.new_cuts
        straight = few and self._is_in_order() and seen["distinct"] == seen["rows"]
        rest, frames = events, []
        if straight:  # a broadcast: otherwise Spark might sort all events
            marked = events.withColumn("id_hash", t.id_hash("entity_id"))
            created = t.messages_of(marked.join(f.broadcast(marks), "id_hash", "left_anti"))
            frames.append(t.first_states(t.changes(created).where("sound")))
            rest = marked.join(f.broadcast(marks), "id_hash", "left_semi")
        changes, seen_bad = t.changes(t.messages_of(rest)), Observation()
        if not straight:
            changes = changes.observe(seen_bad, f.expr("count_if(NOT sound) AS bad"))
        changes = changes.where("sound").drop("sound")
        days = self._days_of("messages", changed.selectExpr("entity_id AS message_id"))
        if self.former is not None and days:
            rows = self.former.read(self.spark, "messages", days)
            if straight:
                hashed = rows.withColumn("id_hash", t.id_hash("message_id"))
                unchanged = hashed.join(f.broadcast(marks), "id_hash", "left_anti")
                frames.append(unchanged.select(*rows.columns))
                rows = hashed.join(f.broadcast(marks), "id_hash", "left_semi")
            changes = changes.unionByName(t.facts(source.drop_undone(rows, self.cuts)))
        frames.append(t.history(changes, unique=straight))
        draft.write(reduce(DataFrame.unionByName, frames), "messages", days)
        if not straight:
            return int(seen_bad.get["bad"])
        # Each sound event is one row, beside those of the days that are written again.
        former = self.former.files("messages") if self.former is not None else []
        kept = sum(file.rows for file in former if file.part in days)
        written = sum(file.rows for file in draft.written_files("messages"))
        return int(seen["messages"] - (written - kept))

    def _is_in_order(self) -> bool:
        """Whether all segments are newer than the ingested ones, so every creation is new."""
        newest = self.memory["newest"]
        return all(segment.first > newest.get(segment.epoch, 0) for segment in self.fresh)

    def _days_of(self, table: str, ids: DataFrame) -> set[str]:
        """The days whose files have rows of these messages, or discarded rows. Only files whose
        range has one of the ids are read."""
        if self.former is None:
            return set()
        parts: set[str] | None = None
        if self.new_cuts:
            rows = self.former.read(self.spark, table)
            ids = ids.unionByName(source.undone(rows, self.new_cuts).select("message_id"))
        else:
            wanted = ids.distinct().limit(IDS_MAX + 1).collect()
            if len(wanted) <= IDS_MAX:
                parts = self.former.parts_with(table, {row["message_id"] for row in wanted})
        if parts == set():
            return set()
        rows = self.former.read(self.spark, table, parts)
        mine = t.mark(rows, ids.select(t.id_hash("message_id")))
        days = mine.select(f.col("day").cast("string")).distinct()
        return {row["day"] for row in days.collect()}

    def _remember(self, draft: Draft, marks: DataFrame) -> int:
        """Note the days on which a message changed in this version. Returns the number of rows of
        changed messages with unknown fields."""
        days = self._count_changed_days(draft, marks)
        changed = dict.fromkeys(sorted(days), draft.number)
        self.memory |= {
            "touched": dict(sorted({**self.memory["touched"], **changed}.items())),
            "cuts": {cut.epoch: cut.last for cut in self.cuts},
        }
        return sum(days.values())

    def _count_changed_days(self, draft: Draft, marks: DataFrame) -> dict[str, int]:
        """The days on which a message changed, with the numbers of rows with unknown fields."""
        in_order, more, none = self._is_in_order(), f.expr("extra IS NOT NULL"), f.lit(False)
        written, rows = draft.written(self.spark, "messages"), []
        if in_order:
            rows.append((written.where(~_is_known(self.memory["newest"])), more))
        if not in_order or self.new_cuts:
            rows.append((t.mark(written, marks), none if in_order else more))
        if self.former is not None and self.new_cuts:  # the discarded rows are not in the draft
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
        """Write the partitions of the smaller tables that have new rows, keep the others, and check
        them. A few tables at a time, because most of the time is planning. Returns the number of
        bad rows."""
        seen = self.seen
        count = sum(seen[table] for table in t.SMALL)
        bad, rows, parsed = seen["bad_envelopes"], None, None
        if count:
            parsed = t.others_of(events)
            parsed = (parsed.coalesce(1) if count <= FEW_MAX else parsed).persist()
            sound = t.is_sound(schema.OTHERS)
            bad += parsed.where(f"NOT {sound}").count()
            rows = parsed.where(sound)
        unknown = t.unknown_of(events) if seen["unknown_events"] else None
        with ThreadPoolExecutor(checks.CONCURRENT_QUERIES_MAX) as pool:
            writes = [pool.submit(self._small, draft, "unknown_events", unknown, t.deduplicate)]
            for table, small in t.SMALL.items():
                new = small.new(rows) if rows is not None and seen[table] else None
                writes.append(
                    pool.submit(self._small, draft, table, new, small.finish, small.derived)
                )
            for written in writes:
                written.result()
        if parsed is not None:
            parsed.unpersist()
        return bad, self._check(draft, *t.SMALL)

    def _quarantine(self, draft: Draft, events: DataFrame, bad: int) -> int:
        """Write the bad rows; returns how many differ."""
        rows = t.quarantine_of(events) if bad else None
        self._small(draft, "quarantine", rows, t.distinct)
        return 0 if rows is None else rows.count()

    def _small(
        self, draft: Draft, table: str, new: DataFrame | None, finish: t.Transform,
        derived: Sequence[str] = (),
    ) -> None:  # fmt: skip
        parts: set[str] = set()
        if self.former is not None and (parts := self._parts(table, new)):
            old = self.former.read(self.spark, table, parts)
            old = source.drop_undone(old, self.cuts).drop(*derived)
            new = old if new is None else new.unionByName(old)
        if new is not None:
            made = finish(new).select(*schema.OUTPUT[table].names)
            by_day = schema.PARTITIONS[table] == "day"
            draft.write(made.repartition("day") if by_day else made.coalesce(1), table, parts)

    def _parts(self, table: str, new: DataFrame | None) -> set[str]:
        """The partitions that are written again, as they get new rows or lose discarded ones; ""
        is a whole table."""
        assert self.former is not None
        if table in schema.RANGES:
            if new is None and not self.new_cuts:
                return set()
            rows = self.former.read(self.spark, table, ()) if new is None else new
            return self._days_of(table, rows.select("message_id"))
        frames = [] if new is None else [new]
        if self.new_cuts:
            frames.append(source.undone(self.former.read(self.spark, table), self.new_cuts))
        column = schema.PARTITIONS[table]
        if column is None:
            return {""} if any(not frame.isEmpty() for frame in frames) else set()
        value = f.col(column).cast("string").alias("part")
        return {row["part"] for frame in frames for row in frame.select(value).distinct().collect()}

    # -- checks --------------------------------------------------------------------------

    def _check(self, draft: Draft, *tables: str) -> list[CheckResult]:
        """Check the files of these tables that this run wrote: nothing else changed. After a
        restore all rows are checked, and after a late event all messages with an event of its
        segment's range, as it may repeat the number of one of them."""

        def rows(table: str) -> DataFrame:
            if self.new_cuts:
                return draft.read(self.spark, table)
            if table == "messages" and not self._is_in_order():
                return draft.read(self.spark, table).where(_is_within(self.fresh))
            return draft.written(self.spark, table)

        mine = [check for check in CHECKS if check.table in tables]
        return checks.run(mine, rows, partial(draft.read, self.spark))


def _ends(former: dict[str, int], cuts: Sequence[segments.EpochEnd]) -> list[segments.EpochEnd]:
    """The ends of epochs, those of the former version too: its segments may have been removed."""
    lasts = dict(former)
    for cut in cuts:
        lasts[cut.epoch] = min(cut.last, lasts.get(cut.epoch, cut.last))
    return [segments.EpochEnd(epoch, last) for epoch, last in sorted(lasts.items())]


def _is_known(newest: dict[str, int]) -> Column:
    known = f.lit(False)
    for epoch, last in newest.items():
        known = known | ((f.col("epoch") == epoch) & (f.col("event_id") <= last))
    return known


def _is_within(fresh: Sequence[segments.SegmentFile]) -> Column:
    """Whether a row is between the first and last event of these segments, by epoch."""
    within = f.lit(False)
    for epoch in sorted({segment.epoch for segment in fresh}):
        mine = [segment for segment in fresh if segment.epoch == epoch]
        low, high = min(result.first for result in mine), max(result.last for result in mine)
        within = within | ((f.col("epoch") == epoch) & f.col("event_id").between(low, high))
    return within
