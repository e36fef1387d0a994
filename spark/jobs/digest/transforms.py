"""Computes keywords by TF-IDF, similar topics by cosine, and answers. Pure: frames in, frames
out."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.functions import col as c

from spark.jobs.digest import schema


def current(history: DataFrame) -> DataFrame:
    """Return the newest state for each message that is in a topic and is not a tombstone."""
    rows = history.where(c("valid_to").isNull() & c("deleted_at").isNull())
    rows = rows.where(c("topic_id").isNotNull() & c("content_raw").isNotNull())
    at = f.coalesce("created_at", "valid_from").alias("at")
    return rows.select("message_id", "topic_id", "channel_id", "sender", "content_raw", at)


def topics(messages: DataFrame, titles: DataFrame, channels: DataFrame) -> DataFrame:
    titles = titles.where(c("valid_to").isNull()).groupBy("topic_id").agg(
        f.max_by("title", "event_id").alias("title")
    )  # fmt: skip
    names = channels.groupBy("channel_id").agg(f.max_by("name", "event_id").alias("channel"))
    counted = messages.groupBy("topic_id").agg(
        f.max_by("channel_id", "at").alias("channel_id"),
        f.count(f.lit(1)).alias("messages"),
        f.count_distinct("sender").alias("senders"),
        f.min("at").alias("first_at"),
        f.max("at").alias("last_at"),
    )
    return counted.join(titles, "topic_id", "left").join(names, "channel_id", "left")


# -- keywords ----------------------------------------------------------------------------


def terms(content: Column) -> Column:
    """Split a text into lower-case words; split a run of CJK characters into pairs."""
    text = f.lower(content)
    spaced = f.regexp_replace(text, schema.CJK + "+", " ")
    words = f.regexp_extract_all(spaced, f.lit(schema.WORD), f.lit(0))
    runs = f.regexp_extract_all(text, f.lit(schema.CJK + "{2,}"), f.lit(0))
    pairs = f.flatten(f.transform(runs, _pairs))
    return f.concat(f.filter(words, _is_term), pairs)


def _is_term(word: Column) -> Column:
    has_letter = f.regexp_like(word, f.lit(schema.LETTER))
    return f.length(word).between(2, schema.TERM_CHARACTERS_MAX) & has_letter


def _pairs(run: Column) -> Column:
    starts = f.sequence(f.lit(1), f.length(run) - 1)
    return f.transform(starts, lambda start: run.substr(start, f.lit(2)))


def scores(messages: DataFrame, topics: DataFrame) -> DataFrame:
    """Return each topic's terms with TF-IDF scores, without terms that all topics have."""
    words = messages.select("topic_id", f.explode(terms(c("content_raw"))).alias("term"))
    counted = words.groupBy("topic_id", "term").agg(f.count(f.lit(1)).alias("count"))
    spread = counted.groupBy("term").agg(f.count(f.lit(1)).alias("topics"))
    total = topics.agg(f.count(f.lit(1)).alias("total"))
    idf = f.log((1 + c("total")) / (1 + c("topics")))
    rows = counted.join(spread, "term").crossJoin(f.broadcast(total))
    return rows.select(
        "topic_id", "term", "count", "topics", (c("count") * idf).alias("score")
    ).where((c("score") > 0) | (c("total") == 1))


def keywords(scored: DataFrame) -> DataFrame:
    """Return each topic's best terms."""
    return _best(scored, schema.KEYWORDS_MAX, c("score").desc(), c("count").desc(), c("term"))


def similar(scored: DataFrame) -> DataFrame:
    """Return topic pairs, both ways, with the cosine between their best terms."""
    best = _best(scored, schema.TERMS_COMPARED_MAX, c("score").desc(), c("term"))
    length = f.sqrt(f.sum(c("score") * c("score")).over(Window.partitionBy("topic_id")))
    rows = best.withColumn("weight", f.try_divide(c("score"), length))
    rows = rows.where(c("topics").between(2, schema.TOPICS_COMPARED_MAX))
    rows = rows.select("topic_id", "term", "weight")
    others = rows.select(
        c("topic_id").alias("other_topic_id"), "term", c("weight").alias("other_weight")
    )
    pairs = rows.join(others, "term").where(c("topic_id") != c("other_topic_id"))
    # Rounded, because the order of a sum changes its last digits.
    cosine = f.round(f.sum(c("weight") * c("other_weight")), 6).alias("similarity")
    close = pairs.groupBy("topic_id", "other_topic_id").agg(cosine)
    close = close.where(c("similarity") >= schema.SIMILARITY_MIN)
    return _best(close, schema.SIMILAR_MAX, c("similarity").desc(), c("other_topic_id"))


def answers(messages: DataFrame) -> DataFrame:
    """Return each topic's most frequent pairs: an answering sender and the previous sender."""
    order = Window.partitionBy("topic_id").orderBy("at", "message_id")
    rows = messages.select(
        "topic_id", "sender", "at",
        f.lag("sender").over(order).alias("answers"), f.lag("at").over(order).alias("before"),
    )  # fmt: skip
    waited = f.unix_micros("at") - f.unix_micros("before")
    mine = (c("sender") != c("answers")) & (waited <= schema.REPLY_SECONDS_MAX * 1_000_000)
    counted = rows.where(mine).groupBy("topic_id", "sender", "answers")
    pairs = counted.agg(f.count(f.lit(1)).alias("replies"))
    return _best(pairs, schema.ANSWERS_MAX, c("replies").desc(), c("sender"), c("answers"))


def _best(rows: DataFrame, rows_max: int, *order: Column) -> DataFrame:
    """Return each topic's first rows in the given order, with their `rank`."""
    rank = f.row_number().over(Window.partitionBy("topic_id").orderBy(*order)).cast("bigint")
    return rows.withColumn("rank", rank).where(c("rank") <= rows_max)
