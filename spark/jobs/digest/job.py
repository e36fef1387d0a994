"""Reads silver and publishes the digest: tables, digest.json and digest.html."""

import json
from functools import partial
from typing import Any

from spark import checks
from spark.checks import TableCheck
from spark.errors import SegmentMissing
from spark.files import writable, write_whole
from spark.jobs.digest import page, schema
from spark.jobs.digest import transforms as t
from spark.jobs.ingest.job import silver
from spark.locations import location
from spark.request import JobReport, JobRequest
from spark.results import ERROR
from spark.tables import ALL, Dataset, Draft

CHECKS = (
    TableCheck("topics.once", "topics", ERROR, unique=("topic_id",)),
    TableCheck("keywords.once", "keywords", ERROR, unique=("topic_id", "rank")),
    TableCheck("keywords.score", "keywords", ERROR, "score < 0"),
    TableCheck("similar.cosine", "similar", ERROR, "similarity NOT BETWEEN 0 AND 1.000001"),
)


def run(ask: JobRequest) -> JobReport:
    source = silver(ask.source).current()
    if source is None:
        raise SegmentMissing(f"{ask.source} contains no silver tables: run ingest first")
    spark = ask.spark
    dataset = Dataset(ask.out / "gold" / "digest", schema.NAME)
    draft = dataset.draft()
    ask.size_shuffles(sum(file.bytes for file in source.files("messages")))
    messages = t.current(source.read(spark, "messages")).persist()
    with ask.progress.step(spark, "digest: topics and answers"):
        titles, channels = source.read(spark, "topics"), source.read(spark, "channels")
        draft.write(t.topics(messages, titles, channels).coalesce(1), "topics", ALL)
        draft.write(t.answers(messages).coalesce(1), "answers", ALL)
    with ask.progress.step(spark, "digest: keywords and similar topics"):
        scored = t.scores(messages, draft.read(spark, "topics")).persist()
        draft.write(t.keywords(scored).coalesce(1), "keywords", ALL)
        draft.write(t.similar(scored).coalesce(1), "similar", ALL)
        scored.unpersist()
    messages.unpersist()
    with ask.progress.step(spark, "digest: checks and page"):
        checked = checks.run(CHECKS, partial(draft.read, spark))
        checks.require_passed(checked, ask.progress)
        counts = _write_page(ask, draft)
    made = ask.commit(dataset, draft, {"silver": source.number})
    return JobReport(counts, checked, made.root)


def _write_page(ask: JobRequest, draft: Draft) -> dict[str, int]:
    read = partial(draft.read, ask.spark)
    total = read("topics").count()
    listed = t.listing(*map(read, ("topics", "keywords", "similar", "answers"))).collect()
    topics = [_plain(row.asDict(recursive=True)) for row in listed]
    digest = {"schema": schema.NAME, "topics": topics, "left_out": total - len(topics)}
    folder = location(draft.root)
    with writable(folder):
        text = json.dumps(digest, ensure_ascii=False, indent=1)
        write_whole(folder / "digest.json", text + "\n")
        write_whole(folder / "digest.html", page.render(digest))
    return {"topics": total, "listed": len(topics)}


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Times as text in UTC; the session's time zone is UTC."""
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in fields.items()
    }
