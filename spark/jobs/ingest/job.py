"""Ingests new segments, each once, and publishes a version.

The version itself lists its segments, so both always agree. Days without changed messages keep
their files.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from spark import checks, source, stream
from spark.dataset import Dataset, Draft, Version
from spark.errors import ChecksFailed
from spark.jobs.ingest import schema
from spark.jobs.ingest import transforms as t
from spark.request import JobReport, JobRequest

WEEK_SECONDS = 7 * 86_400.0
CHANGED_MAX = 1_000_000  # changes whose id hashes fit into a job with 1 GB
EVENT = ("epoch", "event_id")
CHECKS = (
    checks.TableCheck(
        "messages.version", "messages", checks.RANGE, ("version",), checks.ERROR, low=1
    ),
    checks.TableCheck(
        "messages.event", "messages", checks.RANGE, ("event_id",), checks.ERROR, low=1
    ),
    checks.TableCheck("messages.once", "messages", checks.UNIQUE, EVENT, checks.ERROR),
    checks.TableCheck("messages.sender", "messages", checks.NOT_NULL, ("sender",), checks.WARN),
    checks.TableCheck(
        "messages.fresh", "messages", checks.FRESH, ("valid_from",), checks.WARN,
        seconds=WEEK_SECONDS,
    ),
    checks.TableCheck(
        "messages.topic", "messages", checks.REFERENCE, ("topic_id",), checks.WARN,
        other=("topics", "topic_id"),
    ),
    checks.TableCheck("topics.once", "topics", checks.UNIQUE, EVENT, checks.ERROR),
    checks.TableCheck(
        "topics.channel", "topics", checks.REFERENCE, ("channel_id",), checks.WARN,
        other=("channels", "channel_id"),
    ),
    checks.TableCheck("channels.once", "channels", checks.UNIQUE, EVENT, checks.ERROR),
)  # fmt: skip


def silver(out: Path) -> Dataset:
    return Dataset(out / "silver", schema.NAME)


def run(ask: JobRequest) -> JobReport:
    folder = ask.source / "events"
    with silver(ask.out).writing() as dataset:
        merge = Merge(ask, dataset, source.manifests(folder))
        if not ask.remote:  # remote streams call back in a process on the server
            stream.new_segments(ask.spark, folder, ask.out / "checkpoints" / "ingest", merge.take)
        # The checkpoint may be newer than the tables, which can be deleted or restored.
        merge.take(merge.all)
        return JobReport(merge.counts, merge.results, merge.published)


class Merge:
    """Merges new segments with the former version into the next one.

    all  every existing segment, also ingested ones: they show gaps and restores
    """

    def __init__(
        self, ask: JobRequest, dataset: Dataset, segments: list[source.SegmentFile]
    ) -> None:
        self.ask = ask
        self.spark = ask.spark
        self.dataset = dataset
        self.all = segments
        self.cuts = source.cuts(segments)
        self.former: Version | None = dataset.current()
        self.published: Path | None = None
        self.counts: dict[str, int] = {"segments": 0}
        self.results: list[checks.CheckResult] = []

    def take(self, segments: Sequence[source.SegmentFile]) -> None:
        """Publish a version with these segments, unless all of them were ingested before."""
        done = set(self.former.memory["segments"]) if self.former else set()
        new = [segment for segment in source.live(segments) if segment.name not in done]
        if not new:
            return
        # A compacted segment of ingested segments contains nothing new.
        fresh = [segment for segment in new if not source.is_covered(segment, done)]
        for segment in fresh:
            source.verify(segment)
        draft = self.dataset.draft()
        if fresh:
            self._fill(draft, fresh)
        elif self.former is not None:
            for table in schema.OUTPUT:
                draft.keep(self.former, table)
        newest = dict(self.former.memory["newest"]) if self.former else {}
        for segment in new:
            newest[segment.epoch] = max(segment.last, newest.get(segment.epoch, 0))
            done |= {segment.name, *(f"{segment.epoch}/{stem}" for stem in segment.replaces)}
        self.former = self.dataset.commit(draft, {"segments": sorted(done), "newest": newest})
        self.published = self.former.path
        self.counts["segments"] += len(fresh)

    def _fill(self, draft: Draft, fresh: Sequence[source.SegmentFile]) -> None:
        progress = self.ask.progress
        events = source.happened(source.read(self.spark, fresh), self.cuts)
        with progress.step(self.spark, "ingest: counting"):
            (checked,) = t.summarize(events).collect()
            seen = checked.asDict()
        with progress.step(self.spark, "ingest: messages"):
            counts = self._messages(draft, events, fresh, seen)
        with progress.step(self.spark, "ingest: topics and the rest"):
            counts |= self._others(draft, events, seen, counts.pop("bad"))
        with progress.step(self.spark, "ingest: checks"):
            self.results = checks.run(CHECKS, partial(draft.read, self.spark), self.ask.now)
        self.results.append(checks.gaps("segments.gaps", "segments", source.gaps(self.all)))
        if any(result.is_error for result in self.results):
            for line in checks.describe(self.results):
                progress.say(line)
            raise ChecksFailed("the new tables failed a check with severity error")
        for name in ("rows", *t.KINDS, "unknown_events"):
            counts[name] = seen[name]
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    # -- messages ------------------------------------------------------------------------

    def _messages(
        self,
        draft: Draft,
        events: DataFrame,
        fresh: Sequence[source.SegmentFile],
        seen: dict[str, int],
    ) -> dict[str, int]:
        """Messages with only a creation are written directly, the others through a window. If
        events may be duplicated or late, all go through the window."""
        straight = (
            self._is_in_order(fresh)
            and seen["distinct"] == seen["rows"]
            and seen["changes"] <= CHANGED_MAX
        )
        first, later, read, made = (Observation() for _ in range(4))
        unit, fields = f.lit(1), f.col("extra").isNotNull()
        rest, frames = events, []
        if straight:  # a broadcast: otherwise Spark might sort all events
            few = f.broadcast(t.changed(events))
            marked = events.withColumn("id_hash", t.id_hash("entity_id"))
            created = t.created_of(marked.join(few, "id_hash", "left_anti"))
            frames.append(_sound(t.first_states(created), first, fields))
            rest = marked.join(few, "id_hash", "left_semi")
        changes = _sound(t.changes(t.messages_of(rest)), later)
        days = self._days_touched(events, straight)
        if self.former is not None and days:
            rows = self.former.read(self.spark, "messages")
            rewritten = rows.where(f.col("day").isin([date.fromisoformat(day) for day in days]))
            changes = changes.unionByName(t.facts(source.happened(rewritten, self.cuts)))
        sorted_out = t.history(changes.observe(read, f.count(unit).alias("told")))
        more = f.count_if(fields).alias("more")
        frames.append(sorted_out.observe(made, f.count(unit).alias("made"), more))
        draft.write(reduce(DataFrame.unionByName, frames), "messages", schema.DISTINCT)
        if self.former is not None:
            draft.keep(self.former, "messages", days)
        sums = Counter(later.get) + Counter(read.get) + Counter(made.get)
        if straight:
            sums += Counter(first.get)
        duplicates = sums["told"] - sums["made"]
        return {"bad": sums["bad"], "duplicates": duplicates, "unknown_fields": sums["more"]}

    def _is_in_order(self, fresh: Sequence[source.SegmentFile]) -> bool:
        """Whether all segments are newer than the ingested ones, so every creation is new."""
        newest = self.former.memory["newest"] if self.former else {}
        return all(segment.first > newest.get(segment.epoch, 0) for segment in fresh)

    def _days_touched(self, events: DataFrame, in_order: bool) -> set[str]:
        """Days to write again: those of messages with new events, or that a restore discarded. All
        other days keep their files."""
        if self.former is None:
            return set()
        if in_order:
            marks = t.changed(events)
        else:
            marks = events.where(t.named(*schema.MESSAGES)).select(t.id_hash("entity_id"))
        rows = self.former.read(self.spark, "messages")
        marked = rows.select("day", t.id_hash("message_id"))
        mine = marked.join(marks.distinct(), "id_hash", "left_semi")
        frames = [mine.select("day"), *(source.void(rows, cut).select("day") for cut in self.cuts)]
        return {str(row["day"]) for each in frames for row in each.distinct().collect()}

    # -- the rest ------------------------------------------------------------------------

    def _others(
        self, draft: Draft, events: DataFrame, seen: dict[str, int], bad: int
    ) -> dict[str, int]:
        """Write the smaller tables completely if they have new rows, else keep them. A few at a
        time, because most of the time is planning."""
        makes: list[tuple[str, DataFrame | None, t.Small]] = []
        some = any(seen[kind] for kind in t.KINDS)
        parsed = t.others_of(events).persist() if some else None
        bad += seen["bad_envelopes"]
        rows = None
        if parsed is not None:
            sound = t.is_sound(schema.OTHERS)
            bad += parsed.where(~sound).count()
            rows = parsed.where(sound)
        for table, make in t.SMALL.items():
            new = make.rows(rows) if rows is not None and seen[table] else None
            makes.append((table, new, make))
        unknown = t.unknown_of(events) if seen["unknown_events"] else None
        makes.append(("unknown_events", unknown, t.Small(t.unknown_of)))
        quarantine = t.quarantine_of(events) if bad else None
        makes.append(("quarantine", quarantine, t.Small(t.quarantine_of, t.distinct)))
        with ThreadPoolExecutor(checks.CONCURRENT_QUERIES_MAX) as pool:
            for done in [pool.submit(self._small, draft, *each) for each in makes]:
                done.result()
        if parsed is not None:
            parsed.unpersist()
        return {"quarantine": quarantine.count() if quarantine is not None else 0}

    def _small(self, draft: Draft, table: str, new: DataFrame | None, make: t.Small) -> None:
        former = self.former
        void = bool(self.cuts) and former is not None and former.has(table)
        if new is None and not void:
            if former is not None:
                draft.keep(former, table)
            return
        promised = schema.OUTPUT[table].names
        if former is not None and former.has(table):
            old = source.happened(former.read(self.spark, table), self.cuts)
            old = old.select(*[name for name in promised if name != "valid_to"])
            new = old if new is None else new.unionByName(old)
        assert new is not None
        draft.write(make.finish(new).select(*promised).coalesce(1), table)


def _sound(made: DataFrame, seen: Observation, more: Column | None = None) -> DataFrame:
    """The valid rows. Counts the invalid ones, and the valid ones for which `more` is true."""
    sound = f.col("sound")
    sums = [f.count_if(~sound).alias("bad")]
    if more is not None:
        sums.append(f.count_if(sound & more).alias("more"))
    return made.observe(seen, *sums).where(sound).drop("sound")
