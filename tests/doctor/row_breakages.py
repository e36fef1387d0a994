"""ROWS: what is broken in the rows of stores, and in the export."""

from appliance.outbox.queries import LOST as LOST_BY_BROKER
from tests.doctor import breakages as by
from tests.doctor.breakages import DIFFERS, LOST, PEOPLE, Breakage, sql, without_trigger

_GAP = ("events.sequence:gap", "events.sequence-all:gap")
_NEWEST = "(SELECT max(id) FROM messages)"

ROWS = (
    Breakage("search index was dropped", sql("hub", "DROP TABLE x_fts"), ("hub.search:no-index",)),
    Breakage(
        "search index is empty",
        sql("hub", "INSERT INTO messages_fts(messages_fts) VALUES ('delete-all')"),
        ("hub.search-in-step:stale",),
    ),
    Breakage(
        "database has no id",
        sql("hub", "DELETE FROM meta WHERE key = 'db_id'"),
        ("hub.identity:no-id",),
        LOST,
    ),
    Breakage(
        "text was forged",
        sql("hub", f"UPDATE messages SET content_raw = 'forged' WHERE id = {_NEWEST}"),
        DIFFERS,
        flags=("--run", "events.rows", "--data"),
    ),
    Breakage(
        "text was forged in row and event",
        by.all_of(
            sql("hub", f"UPDATE messages SET content_raw = 'forged' WHERE id = {_NEWEST}"),
            without_trigger(
                "prevent_event_mutation",
                "UPDATE events SET data_json ="
                " json_set(data_json, '$.message.content_raw', 'forged')"
                f" WHERE name = 'message.created' AND entity_id = {_NEWEST}",
            ),
        ),
        ("export.agrees:differs",),
        LOST,
    ),
    Breakage(
        "text was forged in its event only",
        without_trigger(
            "prevent_event_mutation",
            "UPDATE events SET data_json = json_set(data_json, '$.message.content_raw', 'forged')"
            f" WHERE name = 'message.created' AND entity_id = {_NEWEST}",
        ),
        ("export.agrees:differs",),
        LOST,
        dict.fromkeys(DIFFERS, "export.agrees:differs"),
        flags=("--all", "--run", "events.rows,export.agrees", "--data"),
    ),
    Breakage(
        "received message was changed",
        sql("inbox", "UPDATE inbox SET sender_pubkey = 'ff' || substr(sender_pubkey, 3)"),
        ("export.agrees:differs",),
        LOST,
    ),
    Breakage(
        "last event was deleted",
        without_trigger(
            "prevent_event_delete",
            "DELETE FROM events WHERE event_id = (SELECT max(event_id) FROM events)",
        ),
        ("events.deleted:end",),
        LOST,
    ),
    Breakage(
        "events are not in order",
        without_trigger(
            "prevent_event_mutation",
            "UPDATE events SET event_id = 9999 WHERE event_id = 40",
            "UPDATE events SET event_id = 40 WHERE event_id = 41",
            "UPDATE events SET event_id = 41 WHERE event_id = 9999",
            "UPDATE sqlite_sequence SET seq = (SELECT max(event_id) FROM events)"
            " WHERE name = 'events'",
            "UPDATE events SET ts = '2001-01-01T00:00:00.000Z' WHERE event_id = 41",
        ),
        ("events.order:time", "events.rows-all:time", "export.agrees:differs"),
        LOST,
    ),
    Breakage(
        "event of a message was deleted",
        without_trigger("prevent_event_delete", "DELETE FROM events WHERE event_id = 10"),
        _GAP,
        LOST,
        {"events.pairs:no-event": _GAP[0]},
    ),
    Breakage(
        "scopes were removed",
        without_trigger(
            "prevent_event_mutation",
            "UPDATE events SET scope_channel_id = NULL, scope_topic_id = NULL,"
            " scope_topic_id2 = NULL WHERE name = 'message.created' AND event_id < 20",
        ),
        ("events.scope:no-scope",),
        explained={"export.agrees:differs": "events.scope:no-scope"},
    ),
    Breakage(
        "message was inserted",
        sql(
            "hub",
            "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
            " SELECT id || 'x', topic_id, channel_id, sender, 'forged', created_at FROM messages"
            " ORDER BY id DESC LIMIT 1",
        ),
        ("events.pairs:no-event",),
        "only people know who wrote the message",
    ),
    Breakage(
        "message was deleted",
        without_trigger(
            "prevent_message_delete",
            "DELETE FROM messages WHERE id = (SELECT max(id) FROM messages)",
        ),
        ("events.rows:missing", "events.rows-all:missing"),
        flags=("--run", "events.rows", "--data"),
    ),
    Breakage(
        "sender is not UTF-8",
        sql("hub", f"UPDATE messages SET sender = CAST(x'61ff' AS TEXT) WHERE id = {_NEWEST}"),
        DIFFERS,
        flags=("--run", "events.rows", "--data"),
    ),
    Breakage(
        "webhook of a mesh is off",
        sql("broker", "UPDATE webhook SET enabled = 0, disabled_because = '410'"),
        ("broker.webhooks:disabled",),
        "its receiver must be repaired first",
    ),
    Breakage(
        "webhook of a mesh fails for long",
        sql("broker", f"UPDATE webhook SET enabled = 1, failing_since_ms = NOW - {3 * by.HOUR_MS}"),
        ("broker.webhooks:failing",),
        "its receiver must be repaired",
    ),
    Breakage(
        "ids are kept for a shorter time than messages",
        sql("broker", "UPDATE mesh SET dedupe_retention_days = 1"),
        ("broker.retention:too-short",),
        PEOPLE,
    ),
    Breakage(
        "mesh message was deleted",
        sql("broker", "DELETE FROM topic_message"),
        ("broker.orphans:orphan",),
        LOST,
    ),
    Breakage(
        "send is a dead letter",
        sql("outbox", "UPDATE outbox SET status = 'dead', delivered_at = NULL, died_at = NOW"),
        ("outbox.dead:dead-letters",),
        PEOPLE,
    ),
    Breakage(
        "copy of a member was refused",
        sql(
            "broker",
            "INSERT INTO meta VALUES ('copy:lab:x', json_object('pubkey', 'x', 'running_on',"
            " 'a:/w', 'refused', 'b:/w', 'at_ms', NOW))",
        ),
        ("identity.elsewhere:elsewhere",),
        PEOPLE,
    ),
    Breakage(
        "broker lost a send",
        sql(
            "outbox",
            "UPDATE outbox SET status = 'dead', delivered_at = NULL, died_at = NOW,"
            f" last_error = '{LOST_BY_BROKER}'",
        ),
        ("outbox.dead:lost",),
        PEOPLE,
    ),
    Breakage(
        "send waits for long",
        sql("outbox", f"UPDATE outbox SET PENDING, accepted_steady_ms = NOW - {by.HOUR_MS}"),
        ("outbox.waiting:waiting",),
        "its broker must be repaired",
    ),
    Breakage(
        "clock is behind",
        sql("outbox", f"UPDATE outbox SET PENDING, enqueued_at = NOW + {9 * by.HOUR_MS}"),
        ("host.clock:past",),
        "only people can set the clock",
    ),
    Breakage(
        "successor of a send is missing",
        sql(
            "outbox",
            "UPDATE outbox SET status = 'aborted', delivered_at = NULL, aborted_at = NOW,"
            " superseded_by = 'out_nowhere'",
        ),
        ("outbox.chain:broken-chain",),
        LOST,
    ),
    Breakage(
        "send was changed",
        sql("outbox", "UPDATE outbox SET payload = CAST('forged' AS BLOB)"),
        ("outbox.fingerprints:altered",),
        LOST,
    ),
    Breakage(
        "body of a mesh message was changed",
        sql("broker", "UPDATE message_queue SET body = 'forged'"),
        ("broker.fingerprints:altered",),
        LOST,
    ),
    Breakage(
        "body of a received message was changed",
        sql("inbox", "UPDATE inbox SET body = 'forged'"),
        ("inbox.fingerprints:altered",),
        LOST,
    ),
    Breakage(
        "scopes of a token were changed",
        sql("auth", "UPDATE tokens SET scopes = '[\"admin\"]' WHERE name = 'reader'"),
        ("audit.rows:differs",),
        PEOPLE,
    ),
    Breakage(
        "senders of a token were changed",
        sql("auth", "UPDATE tokens SET senders = '[\"ada\"]' WHERE name = 'reader'"),
        ("audit.rows:differs",),
        PEOPLE,
    ),
    Breakage(
        "revoked token is valid again",
        sql("auth", "UPDATE tokens SET revoked_ms = NULL WHERE name = 'revoked'"),
        ("audit.rows:differs",),
        PEOPLE,
    ),
    Breakage(
        "token was inserted",
        sql(
            "auth",
            "INSERT INTO tokens (id, name, hash, scopes, created_ms)"
            " VALUES ('tok_x', 'theirs', 'x', '[\"admin\"]', NOW)",
        ),
        ("audit.rows:differs",),
        PEOPLE,
    ),
    Breakage(
        "key of a member was changed",
        sql("broker", "UPDATE member SET pubkey = '00' || substr(pubkey, 3) WHERE name = 'own'"),
        ("audit.rows:differs",),
        PEOPLE,
    ),
    Breakage(
        "envelope was changed",
        sql("courier", "UPDATE journal SET body = CAST('{}' AS BLOB) WHERE number = 2"),
        ("courier.journal:altered",),
        LOST,
    ),
    Breakage(
        "token expires soon",
        sql("auth", f"UPDATE tokens SET expires_ms = NOW + {by.HOUR_MS} WHERE name = 'reader'"),
        ("tokens.expiring:expiring", "audit.rows:differs"),
        PEOPLE,
    ),
    Breakage(
        "segment is short",
        by.short_segment,
        ("export.segments:broken", "export.content:broken"),
        "the export must be written again",
    ),
    Breakage(
        "segment was changed",
        by.forged_segment,
        ("export.content:broken",),
        "the export must be written again",
    ),
    Breakage(
        "export is behind",
        by.export_behind,
        ("export.lag:behind",),
        "the appliance, or agentlip export segments, does it",
    ),
)
