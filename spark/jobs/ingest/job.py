"""Takes the segments that are new since the last run, each once, and publishes a version.

What was taken is remembered in the version itself, so version and memory can't disagree. Days
of which no message changed keep their files.
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
from spark.request import Report, Request

WEEK_SECONDS = 7 * 86_400.0
CHANGED_MAX = 1_000_000  # changes whose marks fit beside a job of 1 GB
EVENT = ("epoch", "event_id")
CHECKS = (
    checks.Check("messages.version", "messages", checks.RANGE, ("version",), checks.ERROR, low=1),
    checks.Check("messages.event", "messages", checks.RANGE, ("event_id",), checks.ERROR, low=1),
    checks.Check("messages.once", "messages", checks.UNIQUE, EVENT, checks.ERROR),
    checks.Check("messages.sender", "messages", checks.NOT_NULL, ("sender",), checks.WARN),
    checks.Check(
        "messages.fresh", "messages", checks.FRESH, ("valid_from",), checks.WARN,
        seconds=WEEK_SECONDS,
    ),
    checks.Check(
        "messages.topic", "messages", checks.REFERENCE, ("topic_id",), checks.WARN,
        other=("topics", "topic_id"),
    ),
    checks.Check("topics.once", "topics", checks.UNIQUE, EVENT, checks.ERROR),
    checks.Check(
        "topics.channel", "topics", checks.REFERENCE, ("channel_id",), checks.WARN,
        other=("channels", "channel_id"),
    ),
    checks.Check("channels.once", "channels", checks.UNIQUE, EVENT, checks.ERROR),
)  # fmt: skip


def silver(out: Path) -> Dataset:
    return Dataset(out / "silver", schema.NAME)


def run(ask: Request) -> Report:
    folder = ask.source / "events"
    with silver(ask.out).writing() as dataset:
        merge = Merge(ask, dataset, source.manifests(folder))
        if not ask.remote:  # its streams would call back into a process of their own, over there
            stream.new_segments(ask.spark, folder, ask.out / "checkpoints" / "ingest", merge.take)
        # The checkpoint may know more than the tables: they were deleted, or put back from a copy.
        merge.take(merge.all)
        return Report(merge.counts, merge.results, merge.published)


class Merge:
    """New segments and the former version become the next one.

    all  every segment that is there, also those taken before: they tell of gaps and restores
    """

    def __init__(self, ask: Request, dataset: Dataset, known: list[source.Segment]) -> None:
        self.ask = ask
        self.spark = ask.spark
        self.dataset = dataset
        self.all = known
        self.cuts = source.cuts(known)
        self.former: Version | None = dataset.current()
        self.published: Path | None = None
        self.counts: dict[str, int] = {"segments": 0}
        self.results: list[checks.Result] = []

    def take(self, found: Sequence[source.Segment]) -> None:
        """One version more, unless all of it was taken before."""
        done = set(self.former.memory["segments"]) if self.former else set()
        new = [one for one in source.live(found) if one.name not in done]
        if not new:
            return
        # What a compaction put together of segments that were taken before holds nothing new.
        fresh = [one for one in new if not source.is_covered(one, done)]
        for one in fresh:
            source.verify(one)
        draft = self.dataset.draft()
        if fresh:
            self._fill(draft, fresh)
        elif self.former is not None:
            for table in schema.OUTPUT:
                draft.keep(self.former, table)
        newest = dict(self.former.memory["newest"]) if self.former else {}
        for one in new:
            newest[one.epoch] = max(one.last, newest.get(one.epoch, 0))
            done |= {one.name, *(f"{one.epoch}/{stem}" for stem in one.replaces)}
        self.former = self.dataset.commit(draft, {"segments": sorted(done), "newest": newest})
        self.published = self.former.path
        self.counts["segments"] += len(fresh)

    def _fill(self, draft: Draft, fresh: Sequence[source.Segment]) -> None:
        progress = self.ask.progress
        events = source.happened(source.read(self.spark, fresh), self.cuts)
        with progress.step(self.spark, "ingest: looking"):
            (looked,) = t.look(events).collect()
            seen = looked.asDict()
        with progress.step(self.spark, "ingest: messages"):
            counts = self._messages(draft, events, fresh, seen)
        with progress.step(self.spark, "ingest: topics and the rest"):
            counts |= self._others(draft, events, seen, counts.pop("bad"))
        with progress.step(self.spark, "ingest: checks"):
            self.results = checks.run(CHECKS, partial(draft.read, self.spark), self.ask.now)
        self.results.append(checks.gaps("segments.gaps", "segments", source.gaps(self.all)))
        if any(result.is_error for result in self.results):
            for line in checks.spell(self.results):
                progress.say(line)
            raise ChecksFailed("the new tables break a check of severity error")
        for name in ("rows", *t.KINDS, "unknown_events"):
            counts[name] = seen[name]
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    # -- messages ------------------------------------------------------------------------

    def _messages(
        self, draft: Draft, events: DataFrame, fresh: Sequence[source.Segment], seen: dict[str, int]
    ) -> dict[str, int]:
        """Messages of which only the creation is told go straight through, the others through
        a window; that is for all where an event may have come twice or late."""
        straight = (
            self._is_in_order(fresh)
            and seen["distinct"] == seen["rows"]
            and seen["changes"] <= CHANGED_MAX
        )
        first, later, told, made = (Observation() for _ in range(4))
        one, fields = f.lit(1), f.col("extra").isNotNull()
        rest, frames = events, []
        if straight:  # told to be small: where the engine only guesses, it would sort all events
            few = f.broadcast(t.changed(events))
            marked = events.withColumn("mark", t.mark("entity_id"))
            created = t.created_of(marked.join(few, "mark", "left_anti"))
            frames.append(_sound(t.first_states(created), first, fields))
            rest = marked.join(few, "mark", "left_semi")
        changes = _sound(t.changes(t.messages_of(rest)), later)
        days = self._days_touched(events, straight)
        if self.former is not None and days:
            rows = self.former.read(self.spark, "messages")
            again = rows.where(f.col("day").isin([date.fromisoformat(day) for day in days]))
            changes = changes.unionByName(t.facts(source.happened(again, self.cuts)))
        sorted_out = t.history(changes.observe(told, f.count(one).alias("told")))
        more = f.count_if(fields).alias("more")
        frames.append(sorted_out.observe(made, f.count(one).alias("made"), more))
        draft.write(reduce(DataFrame.unionByName, frames), "messages", schema.DISTINCT)
        if self.former is not None:
            draft.keep(self.former, "messages", days)
        found = Counter(later.get) + Counter(told.get) + Counter(made.get)
        if straight:
            found += Counter(first.get)
        duplicates = found["told"] - found["made"]
        return {"bad": found["bad"], "duplicates": duplicates, "unknown_fields": found["more"]}

    def _is_in_order(self, fresh: Sequence[source.Segment]) -> bool:
        """All of it is newer than what was taken: no creation can be of a known message."""
        newest = self.former.memory["newest"] if self.former else {}
        return all(one.first > newest.get(one.epoch, 0) for one in fresh)

    def _days_touched(self, events: DataFrame, in_order: bool) -> set[str]:
        """Days that are written anew: of messages of which the new events speak, or which
        a restore took back. All other days keep their files."""
        if self.former is None:
            return set()
        if in_order:
            marks = t.changed(events)
        else:
            marks = events.where(t.named(*schema.MESSAGES)).select(t.mark("entity_id"))
        rows = self.former.read(self.spark, "messages")
        marked = rows.select("day", t.mark("message_id"))
        mine = marked.join(marks.distinct(), "mark", "left_semi")
        frames = [mine.select("day"), *(source.void(rows, cut).select("day") for cut in self.cuts)]
        return {str(row["day"]) for each in frames for row in each.distinct().collect()}

    # -- the rest ------------------------------------------------------------------------

    def _others(
        self, draft: Draft, events: DataFrame, seen: dict[str, int], bad: int
    ) -> dict[str, int]:
        """The smaller tables: written whole where something is new, else kept. A few at a time:
        most of it is planning."""
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
        with ThreadPoolExecutor(checks.AT_ONCE) as pool:
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
    """Without the rows that can't be believed. These are counted, in one go with the others of
    which `more` holds."""
    sound = f.col("sound")
    sums = [f.count_if(~sound).alias("bad")]
    if more is not None:
        sums.append(f.count_if(sound & more).alias("more"))
    return made.observe(seen, *sums).where(sound).drop("sound")
