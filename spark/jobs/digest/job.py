"""Reads silver and publishes the digest tables."""

from functools import partial

from spark import checks
from spark.checks import TableCheck
from spark.errors import SegmentMissing
from spark.jobs.digest import schema
from spark.jobs.digest import transforms as t
from spark.jobs.ingest.job import silver
from spark.request import JobReport, JobRequest
from spark.results import ERROR
from spark.tables import Dataset

CHECKS = (
    TableCheck("topics.once", "topics", ERROR, unique=("topic_id",)),
    TableCheck("keywords.once", "keywords", ERROR, unique=("topic_id", "rank")),
    TableCheck("keywords.score", "keywords", ERROR, "score < 0"),
    TableCheck("similar.cosine", "similar", ERROR, "similarity NOT BETWEEN 0 AND 1.000001"),
)


def run(request: JobRequest) -> JobReport:
    source = silver(request.source).current()
    if source is None:
        raise SegmentMissing(f"{request.source} contains no silver tables: run ingest first")
    spark = request.spark
    dataset = Dataset(request.out / "gold" / "digest", schema.NAME)
    draft = dataset.draft()
    request.size_shuffles(sum(file.bytes for file in source.files("messages")))
    messages = t.current(source.read(spark, "messages")).persist()
    with request.progress.step(spark, "digest: topics and answers"):
        titles, channels = source.read(spark, "topics"), source.read(spark, "channels")
        draft.overwrite(t.topics(messages, titles, channels).coalesce(1), "topics")
        draft.overwrite(t.answers(messages).coalesce(1), "answers")
    with request.progress.step(spark, "digest: keywords and similar topics"):
        scored = t.scores(messages, draft.read(spark, "topics")).persist()
        draft.overwrite(t.keywords(scored).coalesce(1), "keywords")
        draft.overwrite(t.similar(scored).coalesce(1), "similar")
        scored.unpersist()
    messages.unpersist()
    with request.progress.step(spark, "digest: checks"):
        checked = checks.run(CHECKS, partial(draft.read, spark))
        checks.require_passed(checked, request.progress)
        counts = {"topics": draft.read(spark, "topics").count()}
    made = request.commit(dataset, draft, {"silver": source.number})
    return JobReport(counts, checked, made.root)
