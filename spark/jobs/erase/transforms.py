"""Selection by an order, and digests of rows. Pure: frames in, frames out.

A selection has the columns `kind` (message or attachment) and `id`.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark.jobs.erase import schema
from spark.jobs.erase.order import ErasureOrder
from spark.jobs.erase.payload import MARKER, OBJECT_JSON

ATTACHED = "topic.attachment_added"
DIGEST_PARTS = 4  # each has 15 hexadecimal digits, so sums of billions of rows are exact


def c(name: str) -> Column:
    return f.col(name)


# -- what an order selects ---------------------------------------------------------------


def messages_in_log(events: DataFrame) -> DataFrame:
    """A row for each message: its sender, its last channel and topic, and when it began."""
    rows = events.where((c("entity_type") == "message") & c("entity_id").isNotNull())
    sender = f.when(
        c("name") == "message.created", f.get_json_object("data_json", "$.message.sender")
    )
    return _messages(
        rows.select(
            c("entity_id").alias("id"),
            sender.alias("sender"),
            c("scope_channel_id").alias("channel_id"),
            f.coalesce("scope_topic_id2", "scope_topic_id").alias("topic_id"),
            c("ts").alias("at"),
            "event_id",
        )
    )


def messages_in_silver(history: DataFrame) -> DataFrame:
    """The same rows from the table `messages`."""
    return _messages(
        history.select(
            c("message_id").alias("id"), "sender", "channel_id", "topic_id",
            c("valid_from").alias("at"), "event_id",
        )
    )  # fmt: skip


def _messages(rows: DataFrame) -> DataFrame:
    return rows.groupBy("id").agg(
        f.max("sender").alias("sender"),
        f.max_by("channel_id", f.when(c("channel_id").isNotNull(), c("event_id"))).alias(
            "channel_id"
        ),
        f.max_by("topic_id", f.when(c("topic_id").isNotNull(), c("event_id"))).alias("topic_id"),
        f.min("at").alias("at"),
    )


def selected_messages(messages: DataFrame, order: ErasureOrder) -> DataFrame:
    mine = _any_list(
        order, id=order.messages, sender=order.senders, channel_id=order.channels,
        topic_id=order.topics,
    )  # fmt: skip
    return _ids(messages.where(mine & _is_before(order)), schema.MESSAGE)


def attachments_in_log(events: DataFrame) -> DataFrame:
    rows = events.where((c("name") == ATTACHED) & c("entity_id").isNotNull())
    return rows.select(
        c("entity_id").alias("id"),
        f.get_json_object("data_json", "$.attachment.source_message_id").alias("source"),
        c("scope_channel_id").alias("channel_id"),
        c("scope_topic_id").alias("topic_id"),
        c("ts").alias("at"),
    )


def attachments_in_silver(attachments: DataFrame) -> DataFrame:
    """Silver doesn't have the channel of an attachment; the log has it."""
    return attachments.select(
        c("attachment_id").alias("id"),
        c("source_message_id").alias("source"),
        f.lit(None).cast("string").alias("channel_id"),
        "topic_id",
        c("created_at").alias("at"),
    )


def selected_attachments(
    attachments: DataFrame, messages: DataFrame, order: ErasureOrder
) -> DataFrame:
    """Those of selected messages, and those in topics, in channels, or before the day."""
    ids = messages.select(c("id").alias("source"))
    mine = f.lit(False)
    if order.channels or order.topics or not (order.messages or order.senders):
        mine = _any_list(order, channel_id=order.channels, topic_id=order.topics)
        mine = mine & _is_before(order)
    frames = attachments.join(ids, "source", "left_semi").select("id")
    frames = frames.unionByName(attachments.where(mine).select("id"))
    return _ids(frames, schema.ATTACHMENT)


def _any_list(order: ErasureOrder, **columns: tuple[str, ...]) -> Column:
    """Whether a list has the value of its column. An order of `before` alone has no lists."""
    if not (order.messages or order.senders or order.channels or order.topics):
        return f.lit(True)
    mine = f.lit(False)
    for name, values in columns.items():
        if values:
            mine = mine | f.coalesce(c(name).isin(list(values)), f.lit(False))
    return mine


def _is_before(order: ErasureOrder) -> Column:
    return f.lit(True) if order.before is None else f.to_date("at") < f.lit(order.before)


def _ids(rows: DataFrame, kind: str) -> DataFrame:
    return rows.select(f.lit(kind).alias("kind"), "id").distinct()


# -- rows of selected messages -----------------------------------------------------------


def flag(events: DataFrame, selection: DataFrame) -> DataFrame:
    """Adds `affected`: whether the event is about something selected."""
    ids = selection.select(c("id").alias("entity_id"), f.lit(True).alias("chosen")).distinct()
    rows = events.join(ids, "entity_id", "left")
    return rows.withColumn("affected", c("chosen").isNotNull()).drop("chosen")


def is_selected(table: str, frame: DataFrame, selection: DataFrame) -> DataFrame:
    """Adds `affected` to the rows of a table of silver."""
    rows = frame.withColumn("affected", f.lit(False))
    ids = selection.select(c("id").alias("chosen_id")).distinct()
    for name in schema.IDS[table]:
        rows = rows.join(ids, rows[name] == ids["chosen_id"], "left")
        rows = rows.withColumn("affected", c("affected") | c("chosen_id").isNotNull())
        rows = rows.drop("chosen_id")
    return rows


def erase_row(table: str, names: list[str], order: ErasureOrder) -> list[Column]:
    """The columns of a table of silver; without content where a row is `affected`."""
    return [
        f.when(c("affected"), _erase(name, order)).otherwise(c(name)).alias(name)
        if _has_content(table, name, order)
        else c(name)
        for name in names
    ]


def columns_with_content(table: str, names: list[str], order: ErasureOrder) -> list[str]:
    return [name for name in names if _has_content(table, name, order)]


def _has_content(table: str, name: str, order: ErasureOrder) -> bool:
    if name in (*schema.ERASED, "extra", "data_json"):
        return True
    person = name in ("sender", "deleted_by", "principal")
    return person and order.sender_becomes is not None and table in ("messages", "enrichments",
                                                                     "attachments")  # fmt: skip


def _erase(name: str, order: ErasureOrder) -> Column:
    marker, held = f.lit(MARKER), c(name)
    if name == "extra":
        return f.transform_values(held, lambda _key, _value: marker)
    if name == "content_raw":
        is_tombstone = (held == schema.TOMBSTONE) & c("deleted_at").isNotNull()
        return f.when(is_tombstone | held.isNull(), held).otherwise(marker)
    if name == "data_json":  # the data of an enrichment; events are erased by their payload
        return f.when(held.isNotNull(), f.lit(OBJECT_JSON))
    if name in schema.ERASED:
        return f.when(held.isNotNull(), f.lit(schema.ERASED[name]))
    becomes = f.lit(order.sender_becomes)
    if name == "sender":
        return f.when(held.isNotNull(), becomes)
    return f.when(held.isin(list(order.senders)), becomes).otherwise(held)


# -- digests of rows ---------------------------------------------------------------------


def hash_rows(rows: DataFrame, key: str, content: list[str]) -> DataFrame:
    """`key`, `affected`, and a hash of each row, for affected rows without `content`."""
    names = [name for name in rows.columns if name not in (key, "affected")]
    rest = [name for name in names if name not in content]
    row_hash = f.when(c("affected"), _hash(rest)).otherwise(_hash(names))
    return rows.select(key, "affected", row_hash.alias("row_hash"))


def digests(rows: DataFrame, key: str) -> DataFrame:
    """For each `key`: the number of rows, and digests that don't depend on their order.

    untouched  of the rows that are not `affected`
    envelopes  of the affected rows, without their content
    """
    kinds = {"untouched": ~c("affected"), "envelopes": c("affected")}
    sums = [part for name, where in kinds.items() for part in _sums(name, where)]
    grouped = rows.groupBy(key).agg(f.count(f.lit(1)).alias("rows"), *sums)
    return grouped.select(key, "rows", *[_join(name) for name in kinds])


def _join(name: str) -> Column:
    parts = [f.coalesce(c(f"{name}_{index}").cast("string"), f.lit("0"))
             for index in range(DIGEST_PARTS)]  # fmt: skip
    return f.sha2(f.concat_ws(",", *parts), 256).alias(name)


def _hash(names: list[str]) -> Column:
    return f.sha2(f.to_json(f.struct(*names)), 256)


def _sums(name: str, where: Column) -> list[Column]:
    sums = []
    for index in range(DIGEST_PARTS):
        part = f.conv(f.substring("row_hash", 1 + 15 * index, 15), 16, 10).cast("decimal(20,0)")
        sums.append(f.sum(f.when(where, part)).alias(f"{name}_{index}"))
    return sums
