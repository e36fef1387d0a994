"""Transforms events to typed tables. Pure: frames in, frames out, without session or clock.

`messages_of` and `others_of` add the payload `p`; rows that violate RULES go to the
quarantine, the others to their table. The history of a message is a window over its events in
order.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark.jobs.ingest import schema


def c(name: str) -> Column:
    return f.col(name)


def messages_of(events: DataFrame) -> DataFrame:
    """Adds `p`, the payload about the message, with the same fields for every kind of event."""
    rows = events.where(c("name").isin(*schema.MESSAGES))
    created = f.from_json("data_json", schema.CREATED_PAYLOAD)["message"]
    changed = f.from_json("data_json", schema.CHANGED_PAYLOAD)
    read = rows.withColumn("m", f.when(c("name") == "message.created", parse_once(created)))
    read = read.withColumn("j", f.when(c("name") != "message.created", parse_once(changed)))
    return read.withColumn("p", parse_once(f.expr(schema.MESSAGE_FIELDS))).drop("m", "j")


def created_of(events: DataFrame) -> DataFrame:
    """Adds the same `p` for creations only, at a lower cost."""
    rows = events.where(c("name") == "message.created")
    payload = f.from_json("data_json", schema.CREATED_PAYLOAD)
    return rows.withColumn("p", parse_once(payload["message"]))


def others_of(events: DataFrame) -> DataFrame:
    rows = events.where(c("name").isin(*schema.OTHERS))
    return rows.withColumn("p", parse_once(f.from_json("data_json", schema.OTHER_PAYLOAD)))


def parse_once(costly: Column) -> Column:
    """Make an expression non-deterministic, so that the optimizer does not copy it into filters,
    where every field would parse the JSON again: six times the work."""
    return f.when(f.monotonically_increasing_id() >= 0, costly)


def named(*names: str) -> Column:
    return f.coalesce(c("name").isin(*names), f.lit(False))


def is_unknown() -> Column:
    """Whether the event has an unknown name. A row without a name is a bad row instead."""
    return ~named(*schema.EVENT_NAMES) & envelope_is_sound()


def unknown_of(events: DataFrame) -> DataFrame:
    return events.where(is_unknown()).select(*schema.OUTPUT["unknown_events"].names)


def summarize(events: DataFrame) -> DataFrame:
    """Count the work in one cheap pass: one row. `distinct` counts ids exactly, without a shuffle
    or sort, as bits in words of 64."""
    unit, bit = f.lit(1), f.expr("shiftleft(1L, cast(event_id & 63 as int))")
    counts = {
        "rows": f.count(unit),
        "distinct": f.bit_count(f.bit_or(bit)),
        "changes": f.count_if(named(*schema.MESSAGES) & ~named("message.created")),
        **{kind: f.count_if(named(*names)) for kind, names in KINDS.items()},
        "unknown_events": f.count_if(is_unknown()),
        "bad_envelopes": f.count_if(~envelope_is_sound()),
    }
    words = events.groupBy("epoch", f.shiftright("event_id", 6).alias("word"))
    some = words.agg(*[count.alias(name) for name, count in counts.items()])
    return some.agg(*[f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in counts])


def id_hash(entity_id: str) -> Column:
    """A hash of an id, which joins at a fraction of the cost. With a collision, an unchanged
    message counts as changed and takes the slower path to the same rows."""
    return f.xxhash64(entity_id).alias("id_hash")


def changed(events: DataFrame) -> DataFrame:
    """Hashes of the ids of messages that changed after their creation; ids may repeat."""
    rows = events.where(named(*schema.MESSAGES) & ~named("message.created"))
    return rows.select(id_hash("entity_id"))


# -- conditions of a valid row: reason → condition -------------------------------------

ENVELOPE = {
    "event_id is missing or not positive": "event_id is not null and event_id > 0",
    "epoch is missing": "epoch is not null and epoch != ''",
    "ts is missing or not a time": "ts is not null",
    "name is missing": "name is not null and name != ''",
    "entity_id is missing": "entity_id is not null",
}


def _there(prefix: str, *fields: str) -> dict[str, str]:
    return {f"{prefix}{field} is missing": f"p.{prefix}{field} is not null" for field in fields}


MESSAGE = {
    "id is missing": "p.id is not null",
    "version is not a number": "p.version is not null",
    "entity_id is another message": "p.id is null or entity_id <=> p.id",
}
RULES: dict[str, dict[str, str]] = {
    "message.created": MESSAGE
    | _there("", "topic_id", "channel_id", "sender", "content_raw")
    | {"created_at is not a time": "try_cast(p.created_at as timestamp) is not null"},
    "message.edited": MESSAGE | _there("", "content_raw"),
    "message.moved_topic": MESSAGE | _there("", "topic_id"),
    "message.deleted": MESSAGE,
    "channel.created": _there("channel.", "id", "name"),
    "topic.created": _there("topic.", "id", "channel_id", "title"),
    "topic.renamed": _there("", "topic_id", "new_title"),
    "topic.attachment_added": _there("attachment.", "id", "topic_id", "kind", "value_json"),
    "message.enriched": _there("", "message_id", "enrichments"),
}


def envelope_is_sound() -> Column:
    return f.expr(" and ".join(f"({rule})" for rule in ENVELOPE.values()))


def is_sound(names: Iterable[str]) -> Column:
    """Whether parsed rows with one of these names are valid."""
    payload = f.lit(False)
    for name in names:
        holds = f.expr(" and ".join(f"({rule})" for rule in RULES[name].values()))
        payload = f.when(c("name") == name, holds).otherwise(payload)
    return envelope_is_sound() & payload


def quarantine_of(events: DataFrame) -> DataFrame:
    """Every invalid row, unchanged, with all reasons."""
    promised = schema.OUTPUT["quarantine"].names
    nameless = events.where(~envelope_is_sound() & ~named(*schema.EVENT_NAMES)).withColumn(
        "reasons", _reasons(ENVELOPE, f.lit(True))
    )
    frames = [nameless.select(*promised)]
    no_json = {"data_json is not a JSON object": "json_object_keys(data_json) is not null"}
    for rows, names in ((messages_of(events), tuple(schema.MESSAGES)),
                        (others_of(events), schema.OTHERS)):  # fmt: skip
        bad = rows.where(~is_sound(names))
        reasons = [_reasons(ENVELOPE | no_json, f.lit(True))]
        reasons += [_reasons(RULES[name], c("name") == name) for name in names]
        frames.append(bad.withColumn("reasons", f.concat(*reasons)).select(*promised))
    return reduce(DataFrame.unionByName, frames)


def _reasons(rules: dict[str, str], where: Column) -> Column:
    reasons = [f.when(where & ~f.expr(rule), f.lit(reason)) for reason, rule in rules.items()]
    return f.array_compact(f.array(*reasons))


# -- unknown fields ---------------------------------------------------------------------


def extra_of(names: Iterable[str], where: Column) -> Column:
    """Unknown fields of the payload and of its noun, parsed again only `where` there are any; null
    elsewhere."""
    extra: Column = f.lit(None).cast("map<string,string>")
    for name in names:
        extra = f.when(c("name") == name, _extra(name)).otherwise(extra)
    return f.when(where & (f.size(extra) > 0), extra)


def _extra(name: str) -> Column:
    outside = _without(f.from_json("data_json", "map<string,string>"), schema.FIELDS[name])
    if noun := schema.NOUNS.get(name):
        fields = f.from_json("data_json", f"{noun} map<string,string>")[noun]
        return f.map_concat(outside, _without(fields, schema.NOUN_FIELDS[noun]))
    return outside


def has_more(names: Iterable[str]) -> Column:
    """Whether events of the smaller tables have unknown fields."""
    more: Column = f.lit(False)
    for name in names:
        unknown = _others_than(schema.FIELDS[name], f.json_object_keys("data_json"))
        if noun := schema.NOUNS.get(name):
            unknown = unknown | _others_than(schema.NOUN_FIELDS[noun], f.map_keys(c(f"p.{noun}")))
        more = f.when(c("name") == name, unknown).otherwise(more)
    return more


def extra(*names: str) -> Column:
    return extra_of(names, has_more(names)).alias("extra")


def _others_than(expected: Iterable[str], names: Column) -> Column:
    return f.size(f.array_except(names, f.array(*[f.lit(name) for name in expected]))) > 0


def _without(fields: Column, expected: Iterable[str]) -> Column:
    names = list(expected)
    return f.map_filter(fields, lambda key, _: ~key.isin(names))


# -- messages ---------------------------------------------------------------------------


def changes(parsed: DataFrame) -> DataFrame:
    """The changes of each event, null for unchanged columns, and whether the event is `sound`."""
    deleted = c("name") == "message.deleted"
    words = f.create_map(*[f.lit(word) for pair in schema.MESSAGES.items() for word in pair])
    return parsed.select(
        c("p.id").alias("message_id"),
        "p.version",
        words[c("name")].alias("change"),
        f.coalesce("p.channel_id", "scope_channel_id").alias("channel_id"),
        f.coalesce("p.topic_id", "scope_topic_id").alias("topic_id"),
        "p.from_topic_id",
        "p.move_mode",
        "p.sender",
        f.when(deleted, f.lit(schema.TOMBSTONE)).otherwise(c("p.content_raw")).alias("content_raw"),
        c("p.created_at").try_cast("timestamp").alias("created_at"),
        "p.deleted_by",
        "p.principal",
        c("ts").alias("valid_from"),
        "epoch",
        "event_id",
        extra_of(schema.MESSAGES, message_has_more()).alias("extra"),
        is_sound(schema.MESSAGES).alias("sound"),
    )


def facts(history: DataFrame) -> DataFrame:
    """Convert rows of the history back to changes, to merge them with new ones."""
    change = c("change")

    def only(name: str, *of: str) -> Column:
        return f.when(change.isin(*of), c(name)).alias(name)

    return history.select(
        "message_id", "version", "change", "channel_id", "topic_id", "from_topic_id", "move_mode",
        only("sender", "created"),
        only("content_raw", "created", "edited", "deleted"),
        only("created_at", "created"),
        only("deleted_by", "deleted"),
        "valid_from", "epoch", "event_id", "principal", "extra",
    )  # fmt: skip


def history(changes: DataFrame) -> DataFrame:
    """One row for each state of a message. Duplicate events are dropped."""
    order = Window.partitionBy("message_id").orderBy("event_id", "epoch")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def newest(value: Column) -> Column:
        return f.last(value, ignorenulls=True).over(so_far)

    repeated = (f.lag("event_id").over(order) == c("event_id")) & (
        f.lag("epoch").over(order) == c("epoch")
    )
    rows = changes.withColumn("again", repeated).where(~f.coalesce(c("again"), f.lit(False)))
    touched = f.when(c("change").isin("edited", "deleted"), c("valid_from"))
    removed = f.when(c("change") == "deleted", c("valid_from"))
    begun = f.coalesce(c("created_at"), c("valid_from"))
    return rows.select(
        "message_id", "version", "change", "channel_id", "topic_id", "from_topic_id", "move_mode",
        newest(c("sender")).alias("sender"),
        newest(c("content_raw")).alias("content_raw"),
        newest(c("created_at")).alias("created_at"),
        newest(touched).alias("edited_at"),
        newest(removed).alias("deleted_at"),
        newest(c("deleted_by")).alias("deleted_by"),
        "valid_from",
        f.lead("valid_from").over(order).alias("valid_to"),
        "epoch", "event_id", "principal", "extra",
        f.first(f.to_date(begun)).over(so_far).alias("day"),
    ).select(*schema.OUTPUT["messages"].names)  # fmt: skip


def first_states(created: DataFrame) -> DataFrame:
    """The history of messages with only a creation, which needs no sort, and whether each creation
    is `sound`."""
    word, never = f.lit(None).cast("string"), f.lit(None).cast("timestamp")
    created_at = c("p.created_at").try_cast("timestamp")
    made = {
        "message_id": c("p.id"),
        "version": c("p.version"),
        "change": f.lit("created"),
        **{name: c(f"p.{name}") for name in ("channel_id", "topic_id", "sender", "content_raw")},
        **dict.fromkeys(("from_topic_id", "move_mode", "deleted_by"), word),
        "created_at": created_at,
        **dict.fromkeys(("edited_at", "deleted_at", "valid_to"), never),
        "valid_from": c("ts"),
        "epoch": c("epoch"),
        "event_id": c("event_id"),
        "principal": c("p.principal"),
        "extra": extra_of(("message.created",), creation_has_more()),
        "day": f.to_date(created_at),
    }
    columns = [made[name].alias(name) for name in schema.OUTPUT["messages"].names]
    return created.select(*columns, is_sound(("message.created",)).alias("sound"))


def message_has_more() -> Column:
    """Whether parsed message events have unknown fields."""
    more: Column = f.lit(False)
    for name in schema.MESSAGES:
        if name == "message.created":
            unknown = creation_has_more()
        else:
            unknown = _others_than(schema.FIELDS[name], f.json_object_keys("data_json"))
        more = f.when(c("name") == name, unknown).otherwise(more)
    return more


def creation_has_more() -> Column:
    return ~is_as_written() & may_have_more()


def is_as_written() -> Column:
    """Whether the text is exactly a creation as the hub writes it: it begins with the known fields
    up to the content, ends like all of them, and has the same length. Computed without reading
    most of the text; false if text is escaped."""
    end = _created_end()
    length = f.lit(len(schema.CREATED_MIDDLE) + 1) + f.octet_length(end)
    begin: list[Column] = []
    for name in ("id", "topic_id", "channel_id", "sender"):
        text = f'{"," if begin else schema.CREATED_BEGIN}"{name}":"'
        length = length + len(text) + 1 + f.octet_length(c(f"p.{name}"))
        begin += [f.lit(text), c(f"p.{name}"), f.lit('"')]
    for name in ("content_raw", "created_at"):
        length = length + f.octet_length(c(f"p.{name}"))
    begin.append(f.lit(',"content_raw":"'))
    return f.coalesce(
        (f.octet_length("data_json") == length)
        & c("p.version").between(0, 9)
        & c("data_json").endswith(end)
        & c("data_json").startswith(f.concat(*begin)),
        f.lit(False),
    )


def _created_end() -> Column:
    """How the creation ends if the hub wrote it: with its principal, twice, or as older logs do."""
    who = f.coalesce(f.concat(f.lit('"'), c("p.principal"), f.lit('"')), f.lit("null"))
    first, second, close = (f.lit(text) for text in schema.CREATED_PRINCIPALS)
    newer = f.concat(f.lit(schema.CREATED_END), first, who, second, who, close)
    old = f.lit(schema.CREATED_OLD_END)
    return f.when(c("data_json").endswith(old), old).otherwise(newer)


def may_have_more() -> Column:
    """False only if the creation has exactly the known fields. Computed without parsing: a colon
    after a quote ends each name, and quotes inside of text are escaped. The principal is
    optional, so it is not counted."""
    fields = [field for field in schema.NOUN_FIELDS["message"] if field != "principal"]
    text = f.replace(c("data_json"), f.lit('"principal":'), f.lit(""))
    marks = f.octet_length(text) - f.octet_length(f.replace(text, f.lit('":'), f.lit("")))
    plain = marks == 2 * (len(fields) + 1)
    for field in fields:
        if field not in ("id", "topic_id", "channel_id", "sender", "content_raw", "version"):
            plain = plain & f.contains(c("data_json"), f.lit(f'"{field}":'))
    return ~plain


# -- the smaller tables -----------------------------------------------------------------


def topic_facts(parsed: DataFrame) -> DataFrame:
    rows = parsed.where(c("name").isin("topic.created", "topic.renamed"))
    noun = c("p.topic")
    return rows.select(
        f.coalesce(noun["id"], c("p.topic_id")).alias("topic_id"),
        f.when(c("name") == "topic.created", "created").otherwise("renamed").alias("change"),
        f.coalesce(noun["channel_id"], c("scope_channel_id")).alias("channel_id"),
        f.coalesce(noun["title"], c("p.new_title")).alias("title"),
        noun["created_at"].try_cast("timestamp").alias("created_at"),
        c("ts").alias("valid_from"),
        "epoch",
        "event_id",
        "p.principal",
        extra("topic.created", "topic.renamed"),
    )


def topic_history(changes: DataFrame) -> DataFrame:
    order = Window.partitionBy("topic_id").orderBy("event_id", "epoch")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        deduplicate(changes)
        .withColumn("created_at", f.last("created_at", ignorenulls=True).over(so_far))
        .withColumn("valid_to", f.lead("valid_from").over(order))
        .select(*schema.OUTPUT["topics"].names)
    )


def channels(parsed: DataFrame) -> DataFrame:
    noun = c("p.channel")
    return parsed.where(c("name") == "channel.created").select(
        noun["id"].alias("channel_id"),
        noun["name"].alias("name"),
        noun["description"].alias("description"),
        noun["created_at"].try_cast("timestamp").alias("created_at"),
        "epoch",
        "event_id",
        "p.principal",
        extra("channel.created"),
    )


def attachments(parsed: DataFrame) -> DataFrame:
    noun = c("p.attachment")
    words = ("topic_id", "kind", "key", "value_json", "dedupe_key", "source_message_id")
    return parsed.where(c("name") == "topic.attachment_added").select(
        noun["id"].alias("attachment_id"),
        *[noun[word].alias(word) for word in words],
        noun["created_at"].try_cast("timestamp").alias("created_at"),
        "epoch",
        "event_id",
        "p.principal",
        extra("topic.attachment_added"),
    )


def enrichments(parsed: DataFrame) -> DataFrame:
    rows = parsed.where(c("name") == "message.enriched")
    return rows.select(
        c("p.message_id").alias("message_id"),
        f.posexplode("p.enrichments").alias("position", "e"),
        c("ts").alias("created_at"),
        "epoch",
        "event_id",
        "p.principal",
    ).select(
        "message_id",
        c("position").cast("bigint").alias("position"),
        f.coalesce(c("e.kind"), f.lit("")).alias("kind"),
        c("e.span.start").alias("span_start"),
        c("e.span.end").alias("span_end"),
        c("e.data").alias("data_json"),
        "created_at",
        "epoch",
        "event_id",
        "principal",
    )


def deduplicate(frame: DataFrame) -> DataFrame:
    return frame.dropDuplicates(["epoch", "event_id"])


def deduplicate_positions(frame: DataFrame) -> DataFrame:
    return frame.dropDuplicates(["epoch", "event_id", "position"])


def distinct(frame: DataFrame) -> DataFrame:
    """Bad rows may lack their ids: only what is equal in all is the same."""
    return frame.distinct()


class Small(NamedTuple):
    """A table that is written whole: how its rows are made, and made one of each."""

    rows: Callable[[DataFrame], DataFrame]
    finish: Callable[[DataFrame], DataFrame] = deduplicate


SMALL = {
    "topics": Small(topic_facts, topic_history),
    "channels": Small(channels),
    "attachments": Small(attachments),
    "enrichments": Small(enrichments, deduplicate_positions),
}
KINDS = {
    "topics": ("topic.created", "topic.renamed"),
    "channels": ("channel.created",),
    "attachments": ("topic.attachment_added",),
    "enrichments": ("message.enriched",),
}
