"""The digest: keywords, similar topics and answers as a plain program finds them."""

import json
import math
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from spark.jobs.digest import job, page, plan
from spark.jobs.ingest import job as ingest
from tests.spark.log import Log

TEXTS = {
    "deploys": ["deploy failed on node7", "Deploy the gateway again", "gateway deploy done <b>"],
    "gateway": ["the gateway drops sockets", "gateway sockets and deploy"],
    "日本": ["東京都の天気", "東京 weather 42 12345"],
    "lunch": ["soup", "the soup again"],
}


@pytest.fixture
def digest(ask, spark, tmp_path):
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
    log.rename(topics["lunch"], "lunch </title>")
    log.export(tmp_path / "in")
    ingest.run(ask())
    report = job.run(ask(source=tmp_path / "out"))
    return report, topics, json.loads((Path(report.path) / "digest.json").read_text())


def test_digest_is_what_a_plain_program_finds(ask, spark, tmp_path, digest):
    report, topics, made = digest
    by_id = {topic["topic_id"]: topic for topic in made["topics"]}
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
        keywords = [
            (each["term"], pytest.approx(each["score"])) for each in by_id[topic_id]["keywords"]
        ]
        assert keywords == best
        cosines = {}
        for other, other_id in topics.items():
            if other != title and (cosine := plain_cosine(scores[title], scores[other])) >= 0.1:
                cosines[other_id] = pytest.approx(cosine, abs=1e-5)
        assert {
            each["topic_id"]: each["similarity"] for each in by_id[topic_id]["similar"]
        } == cosines
    assert by_id[topics["lunch"]]["answers"] == [
        {"sender": "bob", "answers": "ann", "replies": 1},
        {"sender": "cid", "answers": "bob", "replies": 1},
    ]
    assert by_id[topics["lunch"]]["title"] == "lunch </title>"
    html = (Path(report.path) / "digest.html").read_text()
    assert "<b>" not in html
    assert "lunch &lt;/title&gt;" in html
    assert "secret" not in html + json.dumps(made)
    assert "http://" not in html
    before = (Path(report.path) / "digest.json").read_bytes()
    request = ask(source=tmp_path / "out")
    assert plan.up_to_date(request)
    again = job.run(request)
    assert (Path(again.path) / "digest.json").read_bytes() == before
    assert (Path(again.path) / "digest.html").read_text() == html


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


def test_log_with_a_single_topic_or_no_messages_has_a_digest(ask, spark, tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    log.export(tmp_path / "in")
    ingest.run(ask())
    assert job.run(ask(source=tmp_path / "out")).counts == {"topics": 0, "listed": 0}
    before = log.last
    log.wait(seconds=1).say(topic, "ann", "deploy deploy")
    log.export(tmp_path / "in", after=before)
    ingest.run(ask())
    report = job.run(ask(source=tmp_path / "out"))
    (made,) = json.loads((Path(report.path) / "digest.json").read_text())["topics"]
    assert [each["term"] for each in made["keywords"]] == ["deploy"]
    assert made["similar"] == []


def test_page_stays_below_its_limit_and_says_what_is_left_out():
    at = (Log().now + timedelta(days=1)).isoformat()
    topic = {"title": "<" * 500, "channel": "c" * 500, "messages": 1, "senders": 1, "first_at": at,
             "last_at": at, "similar": [], "answers": [],
             "keywords": [{"term": "&" * 200}] * 10}  # fmt: skip
    topics = [{**topic, "topic_id": f"topic_{number}"} for number in range(200)]
    html = page.render({"topics": topics, "left_out": 7})
    assert len(html.encode()) < 1_000_000
    left = 207 - html.count("<section")
    assert f"{left:,} more topics" in html
    assert html.endswith("</body></html>\n")
