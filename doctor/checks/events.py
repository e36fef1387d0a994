"""The event log: no holes but legal ones, every event routed, every message announced."""

from collections.abc import Iterator

from doctor.check import Check, Context, Cost, Finding, Severity

# A restore opens a new epoch and goes on this much higher, so that no id is given twice.
EPOCH_JUMP = 2**32
_KINDS = "('channel', 'topic', 'message', 'attachment', 'topic_attachment')"


def _sequence(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("hub"):
        rows = connection.execute(
            "SELECT previous, event_id FROM (SELECT event_id, lag(event_id, 1, 0)"
            " OVER (ORDER BY event_id) AS previous FROM events)"
            " WHERE event_id - previous BETWEEN 2 AND ?",
            (EPOCH_JUMP - 1,),
        ).fetchmany(context.settings.findings_max + 1)
        for previous, event_id in rows:
            yield Finding(
                Severity.WARNING,
                "events",
                f"no event between {previous} and {event_id}; clients lose nothing by it, but"
                " something wrote or removed rows past the hub",
            )


def _scope(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("hub"):
        rows = connection.execute(
            "SELECT event_id, name FROM events WHERE scope_channel_id IS NULL AND scope_topic_id"
            f" IS NULL AND scope_topic_id2 IS NULL AND entity_type IN {_KINDS} ORDER BY event_id"
        ).fetchmany(context.settings.findings_max + 1)
        for event_id, name in rows:
            yield Finding(
                Severity.WARNING,
                f"event {event_id}",
                f"{name} has no scope, so no subscriber of a channel or topic hears of it",
            )


def _pairs(context: Context) -> Iterator[Finding]:
    made = "SELECT entity_id FROM events WHERE name = 'message.created'"
    for _, connection in context.opened("hub"):
        for sql, sentence in (
            (f"SELECT id FROM messages EXCEPT {made}", "no event ever said that it was made"),
            (f"{made} EXCEPT SELECT id FROM messages", "its event is there, the message is not"),
        ):
            for (subject,) in connection.execute(sql).fetchmany(context.settings.findings_max + 1):
                yield Finding(
                    Severity.ERROR,
                    f"message {subject}",
                    sentence,
                    "compare with a snapshot in .agentlip/backups",
                )


CHECKS = (
    Check(
        name="events.sequence",
        inspects="the event log has no holes but those of a restore",
        find=_sequence,
    ),
    Check(name="events.scope", inspects="every event has a scope", find=_scope),
    Check(
        name="events.pairs",
        inspects="every message has its event, and every such event its message",
        cost=Cost.EXPENSIVE,
        find=_pairs,
    ),
)
