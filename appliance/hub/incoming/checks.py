"""Checks incoming webhooks: topics that are gone."""

from collections.abc import Iterator

from appliance.checks.check import FINDINGS_MAX, Check, Finding, Problem
from appliance.checks.context import Context

_LOST = (
    "SELECT name FROM x_incoming AS i WHERE topic_id IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM topics AS t WHERE t.id = i.topic_id) LIMIT ?"
)


def _topics(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("hub", "x_incoming"):
        for (name,) in connection.execute(_LOST, (FINDINGS_MAX,)):
            sentence = "its topic does not exist, so deliveries are refused"
            yield GONE.finding(f"incoming webhook {name}", sentence, known={"name": name})


GONE = Problem("gone", hint="agentlip incoming remove NAME")
CHECKS = (
    Check(
        name="incoming.topics", inspects="each incoming webhook has its topic", find=_topics,
        problems=(GONE,),
    ),
)  # fmt: skip
