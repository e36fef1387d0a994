"""Transforms events to typed tables. Pure: frames in, frames out, without session or clock.

`messages_of` adds the payload's fields, `others_of` the payload `p`; rows that violate RULES go to
the quarantine, other rows to their table. A message's history is a window over its events in order.
Expressions are SQL text, which is one call to the engine; a Column needs one call per function.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark.jobs.ingest import creations, schema

Transform = Callable[[DataFrame], DataFrame]
NO_ENRICHMENTS = -1  # position of the row of an event without enrichments


def c(name: str) -> Column:
    return f.col(name)


def messages_of(events: DataFrame, is_plain: bool = False) -> DataFrame:
    """Add the payload's message fields, which are equal for all kinds of events, its unknown
    fields, and `created_at` as a time; null if `created_text` is not a time. If the payloads
    are plain (`SegmentFacts`), creations as the appliance writes them are not parsed."""
    payload = f"from_json(data_json, '{schema.MESSAGE_PAYLOAD}')"
    rows = events.where(named(*schema.MESSAGES))
    rows = creations.cut(rows) if is_plain else rows.withColumn("cut", f.lit(False))
    parsed = {"p": parse_once(f"CASE WHEN NOT cut THEN {payload} END"),
              "extra": f.expr(extra(*schema.MESSAGES))}  # fmt: skip
    fields = [
        f"CASE WHEN cut THEN {schema.CUT.get(field, 'null') if is_plain else 'null'}"
        f" WHEN name = 'message.created' THEN {created} ELSE {changed} END AS {field}"
        for field, (created, changed) in schema.MESSAGE_FIELDS.items()
    ]
    rows = rows.withColumns(parsed).selectExpr(*events.columns, "extra", *fields)
    return rows.withColumn("created_at", parse_once("try_cast(created_text AS timestamp)"))


def creations_of(events: DataFrame) -> DataFrame:
    """Return the creations. With a literal as the name, the optimizer removes what concerns
    other events."""
    return events.where("name = 'message.created'").withColumn("name", f.lit("message.created"))


def others_of(events: DataFrame, names: Iterable[str] = schema.OTHERS) -> DataFrame:
    payload = f"from_json(data_json, '{schema.OTHER_PAYLOAD}')"
    return events.where(named(*names)).withColumn("p", parse_once(payload))


def parse_once(costly: str) -> Column:
    """Make an expression non-deterministic, so that the optimizer does not copy it into filters,
    where every field would parse the JSON again: six times the work."""
    return f.expr(f"CASE WHEN monotonically_increasing_id() >= 0 THEN {costly} END")


def listed(names: Iterable[str]) -> str:
    """Return SQL: 'a', 'b'."""
    return ", ".join(f"'{name}'" for name in names)


def by_name(values: dict[str, str], otherwise: str) -> str:
    """Return SQL for the value that belongs to the event's name."""
    cases = " ".join(f"WHEN '{name}' THEN {value}" for name, value in values.items())
    return f"CASE name {cases} ELSE {otherwise} END"


def named(*names: str) -> str:
    """Return an SQL condition, null for an event without a name."""
    return f"name IN ({listed(names)})"


CHANGE = named(*[name for name in schema.MESSAGES if name != "message.created"])


def is_unknown() -> str:
    """Return an SQL condition for events with an unknown name. A row without a name is a bad row
    instead."""
    return f"NOT coalesce({named(*schema.EVENT_NAMES)}, false) AND {ENVELOPE_IS_SOUND}"


def unknown_of(events: DataFrame) -> DataFrame:
    rows = events.where(is_unknown()).withColumn("day", f.to_date("ts"))
    return rows.select(*schema.OUTPUT["unknown_events"].names)


def summarize(events: DataFrame) -> DataFrame:
    """Count the work in one pass: one row. Only `rows` counts a repeated event twice."""

    def distinct(condition: str) -> str:
        bit = f"CASE WHEN {condition} THEN shiftleft(1L, cast(event_id & 63 AS int)) END"
        without = f"count_if(event_id IS NULL AND {condition})"
        return f"bit_count(coalesce(bit_or({bit}), 0L)) + {without}"

    counts = {
        "rows": "count(1)",
        "distinct": distinct("true"),
        "messages": distinct(named(*schema.MESSAGES)),
        "changes": distinct(CHANGE),
        **{table: distinct(named(*small.names)) for table, small in SMALL.items()},
        "unknown_events": distinct(is_unknown()),
        "bad_envelopes": distinct(f"NOT ({ENVELOPE_IS_SOUND})"),
    }
    words = events.groupBy("epoch", f.expr("shiftright(event_id, 6)").alias("word"))
    some = words.agg(*[f.expr(f"{count} AS {name}") for name, count in counts.items()])
    return some.selectExpr(*[f"coalesce(sum({name}), 0) AS {name}" for name in counts])


def id_hash(entity_id: str) -> Column:
    """Return a cheap hash for an id. With a collision, an unchanged message takes the slower
    path too."""
    return f.expr(f"xxhash64({entity_id}) AS id_hash")


def mark(messages: DataFrame, marks: DataFrame) -> DataFrame:
    """Return the rows with these message hashes."""
    hashed = messages.withColumn("id_hash", id_hash("message_id"))
    return hashed.join(marks, "id_hash", "left_semi").drop("id_hash")


def events_of_changed(events: DataFrame, creations: bool) -> DataFrame:
    """Return the events for messages whose history changes, with creations if a creation may be
    late."""
    mine = events.where(named(*schema.MESSAGES) if creations else CHANGE)
    return mine.where("entity_id IS NOT NULL")


# -- conditions of a valid row: reason → condition -------------------------------------


def is_time(value: str) -> str:
    """Return an SQL condition for times that Python and other date readers can represent."""
    return f"{value} BETWEEN TIMESTAMP'0001-01-01' AND TIMESTAMP'9999-12-31 23:59:59.999999'"


ENVELOPE = {
    "event_id is missing or not positive": "event_id is not null and event_id > 0",
    "epoch is missing": "epoch is not null and epoch != ''",
    "ts is missing or not a time": f"ts is not null and {is_time('ts')}",
    "name is missing": "name is not null and name != ''",
    "entity_id is missing": "entity_id is not null",
}


def _there(*fields: str, of: str = "") -> dict[str, str]:
    return {f"{field} is missing": f"{of}{field} is not null" for field in fields}


MESSAGE = {
    "id is missing": "id is not null",
    "version is not a number": "version is not null",
    "entity_id is another message": "id is null or entity_id <=> id",
}
RULES: dict[str, dict[str, str]] = {
    "message.created": MESSAGE
    | _there("topic_id", "channel_id", "sender", "content_raw")
    | {"created_at is not a time": f"coalesce({is_time('created_at')}, false)"},
    "message.edited": MESSAGE | _there("content_raw"),
    "message.moved_topic": MESSAGE | _there("topic_id"),
    "message.deleted": MESSAGE,
    "channel.created": _there("channel.id", "channel.name", of="p."),
    "topic.created": _there("topic.id", "topic.channel_id", "topic.title", of="p."),
    "topic.renamed": _there("topic_id", "new_title", of="p."),
    "topic.attachment_added": _there(
        *[f"attachment.{field}" for field in ("id", "topic_id", "kind", "value_json")], of="p."
    ),
    "message.enriched": _there("message_id", "enrichments", of="p."),
}


ENVELOPE_IS_SOUND = " AND ".join(f"({rule})" for rule in ENVELOPE.values())


def is_sound(names: Iterable[str]) -> str:
    """Return an SQL condition for valid rows, for parsed rows with these names."""
    rules = {name: " AND ".join(f"({rule})" for rule in RULES[name].values()) for name in names}
    return f"({ENVELOPE_IS_SOUND} AND {by_name(rules, 'false')})"


def quarantine_of(events: DataFrame) -> DataFrame:
    """Return every invalid row, unchanged, with all reasons."""
    promised = schema.OUTPUT["quarantine"].names
    day = f"CASE WHEN {is_time('ts')} THEN to_date(ts) ELSE DATE'1970-01-01' END"
    events = events.withColumn("day", f.expr(day))
    nameless = events.where(
        f"NOT ({ENVELOPE_IS_SOUND}) AND NOT coalesce({named(*schema.WITH_TABLE)}, false)"
    )
    frames = [nameless.withColumn("reasons", f.expr(_reasons(ENVELOPE))).select(*promised)]
    no_json = {"data_json is not a JSON object": "json_object_keys(data_json) IS NOT NULL"}
    for rows, names in ((messages_of(events), tuple(schema.MESSAGES)),
                        (others_of(events), schema.OTHERS)):  # fmt: skip
        bad = rows.where(f"NOT {is_sound(names)}")
        own = by_name({name: _reasons(RULES[name]) for name in names}, "array()")
        reasons = f.expr(f"concat({_reasons(ENVELOPE | no_json)}, {own})")
        frames.append(bad.withColumn("reasons", reasons).select(*promised))
    return reduce(DataFrame.unionByName, frames)


def _reasons(rules: dict[str, str]) -> str:
    reasons = [f"CASE WHEN NOT ({rule}) THEN '{reason}' END" for reason, rule in rules.items()]
    return f"array_compact(array({', '.join(reasons)}))"


# -- unknown fields ---------------------------------------------------------------------


def extra_of(names: Iterable[str], where: str) -> str:
    """Return SQL for unknown fields in the payload and its noun, parsed again only `where` there
    are any; null elsewhere."""
    fields = by_name({name: _extra(name) for name in names}, "null")
    return f"CASE WHEN {where} THEN get(filter(array({fields}), m -> size(m) > 0), 0) END"


def _extra(name: str) -> str:
    outside = _without("from_json(data_json, 'map<string,string>')", schema.FIELDS[name])
    if noun := schema.NOUNS.get(name):
        fields = f"from_json(data_json, '{noun} map<string,string>').{noun}"
        return f"map_concat({outside}, {_without(fields, schema.NOUN_FIELDS[noun])})"
    return outside


def has_more(names: Iterable[str]) -> str:
    """Return an SQL condition for events with unknown fields."""
    return by_name({name: _has_more(name) for name in names}, "false")


def _has_more(name: str) -> str:
    if name == "message.created":
        return "NOT cut"
    unknown = _others_than(schema.FIELDS[name], "json_object_keys(data_json)")
    if noun := schema.NOUNS.get(name):
        return f"{unknown} OR {_others_than(schema.NOUN_FIELDS[noun], f'map_keys(p.{noun})')}"
    return unknown


def extra(*names: str) -> str:
    return f"{extra_of(names, has_more(names))} AS extra"


def _others_than(expected: Iterable[str], names: str) -> str:
    return f"size(array_except({names}, array({listed(expected)}))) > 0"


def _without(fields: str, expected: Iterable[str]) -> str:
    return f"map_filter({fields}, (key, value) -> key NOT IN ({listed(expected)}))"


# -- messages ---------------------------------------------------------------------------


def changes(parsed: DataFrame) -> DataFrame:
    """Return each event's changes, null for unchanged columns, and whether the event is `sound`."""
    words = by_name({name: f"'{word}'" for name, word in schema.MESSAGES.items()}, "null")
    return parsed.selectExpr(
        "id AS message_id",
        "version",
        f"{words} AS change",
        "coalesce(channel_id, scope_channel_id) AS channel_id",
        "coalesce(topic_id, scope_topic_id) AS topic_id",
        "from_topic_id",
        "move_mode",
        "sender",
        f"if(name = 'message.deleted', '{schema.TOMBSTONE}', content_raw) AS content_raw",
        "created_at",
        "deleted_by",
        "principal",
        "ts AS valid_from",
        "epoch",
        "event_id",
        "extra",
        f"{is_sound(schema.MESSAGES)} AS sound",
    )


def facts(history: DataFrame) -> DataFrame:
    """Convert history rows back to changes, to merge them with new changes."""
    writes = "change IN ('created', 'edited', 'deleted')"
    return history.selectExpr(
        "message_id", "version", "change", "channel_id", "topic_id", "from_topic_id", "move_mode",
        "if(change = 'created', sender, null) AS sender",
        f"if({writes}, content_raw, null) AS content_raw",
        "if(change = 'created', created_at, null) AS created_at",
        "if(change = 'deleted', deleted_by, null) AS deleted_by",
        "valid_from", "epoch", "event_id", "principal", "extra",
    )  # fmt: skip


def history(changes: DataFrame, unique: bool = False) -> DataFrame:
    """Return one row for each message state. Duplicate events are dropped, unless events are
    known to be `unique`."""
    order = "PARTITION BY message_id ORDER BY event_id, epoch"
    so_far = f"OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    if not unique:
        before = f"lag(struct(event_id, epoch)) OVER ({order})"
        again = changes.withColumn("again", f.expr(f"{before} <=> struct(event_id, epoch)"))
        changes = again.where("NOT again").drop("again")
    touched = "if(change IN ('edited', 'deleted'), valid_from, null)"
    removed = "if(change = 'deleted', valid_from, null)"
    return changes.selectExpr(
        "message_id", "version", "change", "channel_id", "topic_id", "from_topic_id", "move_mode",
        f"last(sender, true) {so_far} AS sender",
        f"last(content_raw, true) {so_far} AS content_raw",
        f"last(created_at, true) {so_far} AS created_at",
        f"last({touched}, true) {so_far} AS edited_at",
        f"last({removed}, true) {so_far} AS deleted_at",
        f"last(deleted_by, true) {so_far} AS deleted_by",
        "valid_from",
        f"lead(valid_from) OVER ({order}) AS valid_to",
        "epoch", "event_id", "principal", "extra",
        f"first(to_date(coalesce(created_at, valid_from))) {so_far} AS day",
    ).select(*schema.OUTPUT["messages"].names)  # fmt: skip


def first_states(created: DataFrame) -> DataFrame:
    """Return the history for messages with only a creation, made from their `changes` without a
    sort."""
    never = dict.fromkeys(("edited_at", "deleted_at", "valid_to"), f.lit(None).cast("timestamp"))
    states = created.withColumns({**never, "day": f.to_date("created_at")})
    return states.select(*schema.OUTPUT["messages"].names)


# -- the smaller tables -----------------------------------------------------------------


def topic_facts(parsed: DataFrame) -> DataFrame:
    return parsed.selectExpr(
        "coalesce(p.topic['id'], p.topic_id) AS topic_id",
        "if(name = 'topic.created', 'created', 'renamed') AS change",
        "coalesce(p.topic['channel_id'], scope_channel_id) AS channel_id",
        "coalesce(p.topic['title'], p.new_title) AS title",
        "try_cast(p.topic['created_at'] AS timestamp) AS created_at",
        "ts AS valid_from",
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
    return parsed.selectExpr(
        "p.channel['id'] AS channel_id",
        "p.channel['name'] AS name",
        "p.channel['description'] AS description",
        "try_cast(p.channel['created_at'] AS timestamp) AS created_at",
        "epoch",
        "event_id",
        "p.principal",
        extra("channel.created"),
    )


def attachments(parsed: DataFrame) -> DataFrame:
    words = ("topic_id", "kind", "key", "value_json", "dedupe_key", "source_message_id")
    return parsed.selectExpr(
        "p.attachment['id'] AS attachment_id",
        *[f"p.attachment['{word}'] AS {word}" for word in words],
        "try_cast(p.attachment['created_at'] AS timestamp) AS created_at",
        "epoch",
        "event_id",
        "p.principal",
        extra("topic.attachment_added"),
        "to_date(ts) AS day",
    )


def enrichments(parsed: DataFrame) -> DataFrame:
    """Return a row for each enrichment; at position -1, a row for each event without
    enrichments."""
    rows = parsed.selectExpr(
        "p.message_id", "posexplode_outer(p.enrichments) AS (position, e)", "p.plugin",
        "p.version AS message_version", "ts AS valid_from", "epoch", "event_id", "p.principal",
        extra("message.enriched"),
    )  # fmt: skip
    return rows.selectExpr(
        "message_id",
        f"coalesce(cast(position AS bigint), {NO_ENRICHMENTS}) AS position",
        "coalesce(e.kind, '') AS kind",
        "e.span.start AS span_start",
        "e.span.end AS span_end",
        "e.data AS data_json",
        "plugin", "message_version", "valid_from AS created_at", "valid_from",
        "epoch", "event_id", "principal", "extra",
    )  # fmt: skip


def enrichment_history(rows: DataFrame) -> DataFrame:
    """Add `valid_to`: the time of the plugin's next event for the message, which replaces all
    former enrichments. `rows` has all rows for each message, whatever the day. Duplicates are
    dropped; rows without a plugin are never replaced."""
    of_plugin = Window.partitionBy("message_id", "plugin")
    order = of_plugin.orderBy("event_id", "epoch", "position")
    of_event = Window.partitionBy("message_id", "plugin", "event_id", "epoch")
    following = f.lead(f.struct("event_id", "epoch", "valid_from")).over(order)
    is_last = (c("next.event_id") != c("event_id")) | (c("next.epoch") != c("epoch"))
    replaced = f.max(f.when(is_last, c("next.valid_from"))).over(of_event)
    never = c("position") == NO_ENRICHMENTS
    of_message = Window.partitionBy("message_id").orderBy("event_id", "epoch", "position")
    return (
        rows.dropDuplicates(["epoch", "event_id", "position"])
        .withColumn("valid_from", f.coalesce("valid_from", "created_at"))
        .withColumn("day", f.first(f.to_date("valid_from")).over(of_message))
        .withColumn("next", following)
        .withColumn("replaced", f.when(c("plugin").isNotNull(), replaced))
        .withColumn("valid_to", f.when(never, c("valid_from")).otherwise(c("replaced")))
        .select(*schema.OUTPUT["enrichments"].names)
    )


def deduplicate(frame: DataFrame) -> DataFrame:
    return frame.dropDuplicates(["epoch", "event_id"])


class Small(NamedTuple):
    """A smaller table: its event names, how rows are made from events, and how rows, or all rows
    for some entities, become the table's content.

    entity   the column with the id whose rows `finish` needs all, such as a topic's id
    derived  columns that `finish` adds
    """

    names: tuple[str, ...]
    rows: Transform
    finish: Transform = deduplicate
    entity: str = "event_id"
    derived: tuple[str, ...] = ()

    def new(self, parsed: DataFrame) -> DataFrame:
        return self.rows(parsed.where(named(*self.names)))


SMALL = {
    "topics": Small(
        ("topic.created", "topic.renamed"), topic_facts, topic_history, "topic_id", ("valid_to",)
    ),
    "channels": Small(("channel.created",), channels),
    "attachments": Small(("topic.attachment_added",), attachments),
    "enrichments": Small(
        ("message.enriched",), enrichments, enrichment_history, "message_id", ("valid_to", "day")
    ),
}
UNKNOWN = Small((), unknown_of)
# Bad rows may lack their ids: only what is equal in all is the same.
QUARANTINE = Small((), quarantine_of, DataFrame.distinct, "day")
