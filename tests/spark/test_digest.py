"""The digest: keywords, similar topics and answers as a plain program finds them."""

import math
import re
from collections import Counter
from types import SimpleNamespace

import pytest

from spark.jobs.digest import job, plan, schema
from spark.jobs.ingest import job as ingest
from spark.tables import Dataset
from tests.spark.log import Log

TEXTS = {
    "deploys": ["deploy failed on node7", "Deploy the gateway again", "gateway deploy done <b>"],
    "gateway": ["the gateway drops sockets", "gateway sockets and deploy"],
    "日本": ["東京都の天気", "東京 weather 42 12345"],
    "lunch": ["soup", "the soup again"],
}


@pytest.fixture
def topics(make_request, tmp_path):
    """Tables of a log with these texts. Returns the ids of topics by their titles."""
    log = Log()
    channel = log.channel("ops & <more>")
    topics = {title: log.topic(channel, title) for title in TEXTS}
    for title, texts in TEXTS.items():
        for number, text in enumerate(texts):
            log.wait(seconds=60).say(topics[title], ("ann", "bob")[number % 2], text)
    gone = log.say(topics["lunch"], "cid", "secret secret secret")
    log.delete(gone)
    log.edit(log.say(topics["lunch"], "cid", "draft"), "soup")
    log.wait(days=2).say(topics["lunch"], "ann", "soup")
    log.rename(topics["lunch"], "lunch, later")
    log.export(tmp_path / "in")
    ingest.run(make_request())
    return topics


def make(make_request, spark, tmp_path):
    """Runs the job. Returns its report, and the rows of each table in the order of their ranks."""
    report = job.run(make_request(source=tmp_path / "out"))
    made = Dataset(report.path, plan.SCHEMA).current()
    rows = {}
    for table in schema.OUTPUT:
        frame = made.read(spark, table)
        order = ("topic_id", "rank") if "rank" in frame.columns else ("topic_id",)
        rows[table] = [row.asDict() for row in frame.orderBy(*order).collect()]
    return SimpleNamespace(report=report, **rows)


def of(rows, topic_id, *columns):
    return [tuple(row[name] for name in columns) for row in rows if row["topic_id"] == topic_id]


def test_digest_is_what_a_plain_program_finds(make_request, spark, tmp_path, topics):
    made = make(make_request, spark, tmp_path)
    assert made.report.counts == {"topics": len(topics)}
    texts = {**TEXTS, "lunch": ["soup", "the soup again", "soup", "soup"]}
    counts = {title: Counter(term for text in mine for term in plain_terms(text))
              for title, mine in texts.items()}  # fmt: skip
    spread = Counter(term for mine in counts.values() for term in mine)
    scores = {
        title: {term: n * math.log(5 / (1 + spread[term])) for term, n in mine.items()}
        for title, mine in counts.items()
    }
    for title, topic_id in topics.items():
        best = sorted(scores[title].items(), key=lambda item: (-item[1], -counts[title][item[0]],
                                                               item[0]))[:10]  # fmt: skip
        assert of(made.keywords, topic_id, "term", "score") == [
            (term, pytest.approx(score)) for term, score in best
        ]
        cosines = {
            other_id: pytest.approx(cosine, abs=1e-5)
            for other, other_id in topics.items()
            if other != title and (cosine := plain_cosine(scores[title], scores[other])) >= 0.1
        }
        assert dict(of(made.similar, topic_id, "other_topic_id", "similarity")) == cosines
    assert of(made.answers, topics["lunch"], "sender", "answers", "replies") == [
        ("bob", "ann", 1), ("cid", "bob", 1)
    ]  # fmt: skip
    assert of(made.topics, topics["lunch"], "title", "messages") == [("lunch, later", 4)]
    assert "secret" not in repr(made)
    assert plan.up_to_date(make_request(source=tmp_path / "out"))


def plain_terms(text):
    runs = re.findall("[\u3041-\u30ff\u4e00-\u9fff]+", text)
    spaced = re.sub("[\u3041-\u30ff\u4e00-\u9fff]+", " ", text.lower())
    words = [word for word in re.findall(r"\w+", spaced) if re.search("[a-z]", word)]
    pairs = [run[index : index + 2] for run in runs for index in range(len(run) - 1)]
    return [word for word in words if len(word) > 1] + pairs


def plain_cosine(mine, other):
    def length(scores):
        return math.sqrt(sum(score * score for score in scores.values()))

    dot = sum(score * other[term] for term, score in mine.items() if term in other)
    return dot / (length(mine) * length(other))


def test_log_with_a_single_topic_or_no_messages_has_a_digest(make_request, spark, tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    log.export(tmp_path / "in")
    ingest.run(make_request())
    assert make(make_request, spark, tmp_path).report.counts == {"topics": 0}
    before = log.last
    log.wait(seconds=1).say(topic, "ann", "deploy deploy")
    log.export(tmp_path / "in", after=before)
    ingest.run(make_request())
    made = make(make_request, spark, tmp_path)
    assert of(made.keywords, topic, "term") == [("deploy",)]
    assert made.similar == []
