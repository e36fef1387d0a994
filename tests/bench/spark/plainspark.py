"""Ingest and activity as one would write them in SQL over the same Parquet: no versions, no checks.

Ingest is the floor: every event parsed once, and appended to Delta tables with the columns of
silver, or merged into them.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TURNS = """
    SELECT *, to_date(valid_from) AS on_day, unix_micros(valid_from) AS at,
           lag(sender) OVER w AS before, lag(unix_micros(valid_from)) OVER w AS before_at
    FROM messages WHERE change = 'created'
    WINDOW w AS (PARTITION BY topic_id ORDER BY valid_from, event_id)
"""
REPLIES = """
    SELECT *, (-at + last(turn_at, true) OVER w) / 1e6 AS waited
    FROM (SELECT *, CASE WHEN before IS NULL OR before != sender THEN at END AS turn_at FROM turns)
    WINDOW w AS (PARTITION BY topic_id ORDER BY valid_from DESC, event_id DESC
                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""
SPANS = """
    SELECT on_day AS day, channel_id, topic_id, sender, min(valid_from) AS started_at,
           max(valid_from) AS ended_at, count(*) AS messages
    FROM (SELECT *, sum(begins) OVER (PARTITION BY on_day, channel_id, topic_id, sender
                                      ORDER BY at, event_id) AS span
          FROM (SELECT *, CASE WHEN at - lag(at) OVER w > 1800000000 OR lag(at) OVER w IS NULL
                               THEN 1 ELSE 0 END AS begins FROM turns
                WINDOW w AS (PARTITION BY on_day, channel_id, topic_id, sender
                             ORDER BY at, event_id)))
    GROUP BY on_day, channel_id, topic_id, sender, span
"""
BUCKET = "greatest(-349, ceil(ln(greatest({}, 1e-6)) / ln(1.02)))"
WAITED = f"""
    count(*) AS replies, percentile(waited, 0.5) AS median, percentile(waited, 0.95) AS p95,
    collect_list({BUCKET.format("waited")}) AS all
"""
HISTOGRAM = """
    map_from_entries(transform(array_distinct(all), b -> (b, size(filter(all, x -> x = b)))))
"""
PAIRS = f"""
    SELECT * EXCEPT (all), {HISTOGRAM} AS buckets
    FROM (SELECT day, channel_id, topic_id, sender, answers, {WAITED}
          FROM (SELECT on_day AS day, channel_id, topic_id, sender, before AS answers,
                       (at - before_at) / 1e6 AS waited
                FROM turns WHERE before != sender AND at - before_at <= 86400000000)
          GROUP BY day, channel_id, topic_id, sender, answers)
"""
ACTIVITY = f"""
    SELECT c.*, r.* EXCEPT (day, channel_id, topic_id, sender), s.spans, s.seconds
    FROM (SELECT to_date(valid_from) AS day, channel_id, topic_id, sender,
                 count_if(change = 'created') AS messages, count_if(change = 'edited') AS edits,
                 count_if(change = 'deleted') AS deletes, count_if(change = 'moved') AS moves
          FROM messages GROUP BY ALL) c
    LEFT JOIN (SELECT * EXCEPT (all), {HISTOGRAM} AS buckets
               FROM (SELECT on_day AS day, channel_id, topic_id, sender, {WAITED}
                     FROM replies WHERE waited <= 86400
                     GROUP BY on_day, channel_id, topic_id, sender)) r
        USING (day, channel_id, topic_id, sender)
    LEFT JOIN (SELECT day, channel_id, topic_id, sender, count(*) AS spans,
                      sum((unix_micros(ended_at) - unix_micros(started_at)) / 1e6) AS seconds
               FROM spans GROUP BY ALL) s
        USING (day, channel_id, topic_id, sender)
"""
NAMES = {
    "topics": "SELECT topic_id, channel_id, title FROM topics WHERE valid_to IS NULL",
    "channels": "SELECT channel_id, name FROM channels",
}
ENDS = "lead(valid_from) OVER (PARTITION BY message_id ORDER BY event_id)"
PAYLOAD = (
    "message struct<id: string, topic_id: string, channel_id: string, sender: string,"
    " content_raw: string, version: bigint, created_at: timestamp>, message_id string,"
    " version bigint, new_content string, old_topic_id string, new_topic_id string, mode string,"
    " deleted_by string, principal string"
)
MESSAGES = f"""
    SELECT coalesce(j.message.id, j.message_id) AS message_id,
           coalesce(j.message.version, j.version) AS version, name AS change,
           scope_channel_id AS channel_id, scope_topic_id AS topic_id,
           j.old_topic_id AS from_topic_id, j.mode AS move_mode, j.message.sender AS sender,
           coalesce(j.message.content_raw, j.new_content) AS content_raw,
           j.message.created_at AS created_at, cast(null AS timestamp) AS edited_at,
           cast(null AS timestamp) AS deleted_at, j.deleted_by AS deleted_by, ts AS valid_from,
           cast(null AS timestamp) AS valid_to, epoch, event_id,
           j.principal AS principal, cast(null AS map<string,string>) AS extra, to_date(ts) AS day
    FROM (SELECT *, from_json(data_json, '{PAYLOAD}') AS j FROM events
          WHERE name IN ('message.created', 'message.edited', 'message.moved_topic',
                         'message.deleted'))
"""
# The smaller tables: names of the events, fields of their payload, columns.
OTHERS = {
    "topics": (
        "'topic.created', 'topic.renamed'",
        "topic struct<id: string, channel_id: string, title: string, created_at: timestamp>,"
        " topic_id string, new_title string, principal string",
        "coalesce(j.topic.id, j.topic_id) AS topic_id, name AS change,"
        " j.topic.channel_id AS channel_id, coalesce(j.topic.title, j.new_title) AS title,"
        " j.topic.created_at AS created_at",
    ),
    "channels": (
        "'channel.created'",
        "channel struct<id: string, name: string, description: string, created_at: timestamp>,"
        " principal string",
        "j.channel.id AS channel_id, j.channel.name AS name, j.channel.description AS description,"
        " j.channel.created_at AS created_at",
    ),
    "attachments": (
        "'topic.attachment_added'",
        "attachment struct<id: string, topic_id: string, kind: string, key: string,"
        " value_json: string, dedupe_key: string, source_message_id: string,"
        " created_at: timestamp>, principal string",
        "j.attachment.*",
    ),
    "enrichments": (
        "'message.enriched'",
        "message_id string, plugin string, version bigint, principal string,"
        " enrichments array<struct<kind: string, span: struct<start: bigint, end: bigint>,"
        " data: string>>",
        "j.message_id AS message_id, j.plugin AS plugin, j.version AS message_version,"
        " posexplode_outer(j.enrichments) AS (position, enrichment)",
    ),
}


Write = Callable[[Any, Any, Path, str], None]


def ingest(spark: Any, days: Sequence[Path], out: Path, write: Write) -> None:
    """Parse the segments of these days, and write their rows to tables below `out`."""
    events = spark.read.parquet(*[str(file) for day in days for file in day.glob("*.parquet")])
    events.createOrReplaceTempView("events")
    write(spark, spark.sql(MESSAGES), out / "messages", "day")
    for table, (names, payload, columns) in OTHERS.items():
        frame = spark.sql(f"""
            SELECT {columns}, j.principal AS principal, ts AS valid_from, epoch, event_id
            FROM (SELECT *, from_json(data_json, '{payload}') AS j FROM events
                  WHERE name IN ({names}))
        """)
        write(spark, frame, out / table, "")


def append(spark: Any, frame: Any, table: Path, partition: str) -> None:
    writer = frame.write.format("delta").mode("append")
    (writer.partitionBy(partition) if partition else writer).save(str(table))


def merge(spark: Any, frame: Any, table: Path, partition: str) -> None:
    """Insert the rows that the table does not have, by the key of silver. Of messages, the former
    state gets the time at which it ended, as in any table with history."""
    columns = frame.columns
    keys = ["epoch", "event_id", *(["position"] if "position" in columns else [])]
    matched = ""
    if partition:
        former = spark.read.format("delta").load(str(table)).where("valid_to IS NULL")
        former = former.join(frame.select("message_id").distinct(), "message_id", "left_semi")
        former.select(*columns).unionByName(frame).createOrReplaceTempView("states")
        frame = spark.sql(f"SELECT * EXCEPT (valid_to), {ENDS} AS valid_to FROM states")
        matched = "WHEN MATCHED THEN UPDATE SET t.valid_to = s.valid_to "
    frame.select(*columns).createOrReplaceTempView("parsed")
    same = " AND ".join(f"t.{key} = s.{key}" for key in keys)
    spark.sql(
        f"MERGE INTO delta.`{table}` t USING parsed s ON {same} {matched}"
        "WHEN NOT MATCHED THEN INSERT *"
    )


def activity(spark: Any, silver: Path, out: Path) -> None:
    for table in ("messages", "topics", "channels"):
        spark.read.format("delta").load(str(silver / table)).createOrReplaceTempView(table)
    spark.sql(TURNS).createOrReplaceTempView("turns")
    spark.sql(REPLIES).createOrReplaceTempView("replies")
    spark.sql(SPANS).createOrReplaceTempView("spans")
    for name, query in {"spans": SPANS, "pairs": PAIRS, "activity": ACTIVITY}.items():
        frame = spark.sql(query).repartition("day")
        frame.write.format("delta").partitionBy("day").mode("overwrite").save(str(out / name))
    for name, query in NAMES.items():
        spark.sql(query).write.format("delta").mode("overwrite").save(str(out / name))
