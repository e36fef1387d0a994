"""FILES and STORE_FILES: what is broken in files, and in stores as a whole."""

from tests.doctor import breakages as by
from tests.doctor.breakages import DIFFERS, LOST, PEOPLE, START, Breakage, sql, write

_REPORT = "it says what happened, and nothing is wrong now"

FILES = (
    Breakage("token is open", by.mode(".agentlip/token", 0o644), ("host.private:too-open",)),
    Breakage(
        "token is empty",
        write(".agentlip/token", ""),
        ("host.token:empty",),
        "a new token must be issued, because only its hash is known",
        explained={"store.record:missing": "host.token:empty"},
    ),
    Breakage(
        "everything can be read by all",
        by.open_to_all,
        ("host.private:many-open", "network.agents:unusable"),
    ),
    Breakage(
        "settings can be changed by all",
        by.mode("agentlip.toml", 0o666),
        ("settings.file:too-open",),
    ),
    Breakage(
        "settings are not TOML",
        write("agentlip.toml", "[hub\n"),
        ("settings.file:invalid",),
        PEOPLE,
    ),
    Breakage(
        "settings contradict each other",
        write("agentlip.toml", "[courier]\nbytes_max = 1_000_000_000\n"),
        ("settings.file:contradictory",),
        PEOPLE,
    ),
    Breakage(
        "a rate limit that refuses normal use",
        write("agentlip.toml", "[limits]\nper_connection = 1\n"),
        ("settings.file:absurd-limit",),
        PEOPLE,
    ),
    Breakage(
        "settings of another implementation",
        write("agentlip.config.ts", "export default {}"),
        ("settings.unread:ignored",),
        PEOPLE,
    ),
    Breakage(
        "secret file is missing",
        write("agentlip.toml", '[mail]\npassword_file = "HERE/absent"\n'),
        ("settings.secrets:missing",),
        "nobody else knows the secret",
    ),
    Breakage(
        "server.json of a hub that ended",
        by.server_file(pid=999_999_999),
        ("host.server-file:left-behind",),
    ),
    Breakage(
        "lock of a hub that was killed",
        write(".agentlip/locks/writer.lock", '{"pid": 999999999}'),
        ("host.lock:left-behind",),
        START,
    ),
    Breakage(
        "logs can't be written",
        by.mode(".agentlip/logs", 0o500),
        ("host.logs:not-writable",),
        "repair gives no permissions; the hint does",
    ),
    Breakage(
        "logs are a file",
        by.all_of(by.remove(".agentlip/logs"), write(".agentlip/logs", "")),
        ("host.logs:not-a-folder",),
        PEOPLE,
    ),
    Breakage(
        "logs are large",
        by.large_log_file,
        ("host.logs:too-large",),
        "only people know which logs they still need",
    ),
    Breakage(
        "member key is not JSON",
        write(".agentlip/identity/keypair.json", "{"),
        ("identity.keypair:invalid",),
        LOST,
    ),
    Breakage(
        "rotation of the member key is unfinished",
        write(".agentlip/identity/keypair-next.json", "{}"),
        ("identity.keypair:unfinished-rotation",),
        "brokers must be told the new key: agentlip identity rotate",
    ),
    Breakage(
        "part of the member key is a folder",
        by.put(".agentlip/identity/keypair-next.json", lambda path: path.mkdir(0o700)),
        ("identity.keypair:not-a-file",),
        "only people know what belongs there",
    ),
    Breakage(
        "member key of another machine",
        by.other_machine,
        ("identity.machine:other-machine",),
        "only people know whether the workspace was moved or copied",
    ),
)

STORE_FILES = (
    Breakage(
        "record of the audit log was changed", by.changed_record, ("audit.chain:broken",), LOST
    ),
    Breakage(
        "audit log is damaged",
        by.damaged_audit_log,
        ("store.opens:damaged",),
        LOST,
        {"audit.chain:unreadable": "store.opens:damaged"},
    ),
    Breakage(
        "store is missing", by.remove(".agentlip/inbox.sqlite3"), ("store.opens:missing",), LOST
    ),
    Breakage(
        "two stores were swapped",
        by.swapped("inbox", "outbox"),
        ("store.record:foreign",),
        "moving them back does it",
        by.OF_SWAPPED,
    ),
    Breakage("migration is half done", by.half_migrated, ("store.migratable:half-migrated",), LOST),
    Breakage("older file was put back", by.older_file, ("store.record:behind",), LOST),
    Breakage(
        "record of the stores is damaged",
        write(".agentlip/stores.json", "{"),
        ("store.record:unreadable",),
        "moving it away does it",
    ),
    Breakage(
        "note of the newest event is damaged",
        write(".agentlip/newest-event", "?"),
        ("store.record:unreadable",),
        START,
    ),
    Breakage("store is empty", by.empty_file("outbox"), ("store.opens:empty",), LOST),
    Breakage("store has no header", by.no_header("broker"), ("store.opens:damaged",), LOST),
    Breakage(
        "table of the bus was dropped",
        sql("bus", "DROP TABLE x_reviews"),
        ("store.objects:missing",),
        LOST,
    ),
    Breakage(
        "index of the bus was dropped",
        sql("bus", "DROP INDEX idx_messages_to_seq"),
        ("store.objects:missing",),
    ),
    Breakage(
        "trigger eats messages of the bus",
        sql(
            "bus", "CREATE TRIGGER theirs BEFORE INSERT ON messages BEGIN SELECT RAISE(IGNORE); END"
        ),
        ("store.objects:foreign-trigger",),
    ),
    Breakage(
        "messages of the bus were deleted",
        sql("bus", "DELETE FROM messages WHERE seq BETWEEN 10 AND 20"),
        ("bus.deleted:deleted",),
        LOST,
    ),
    Breakage("bus was deleted", by.without_bus, ("bus.mode:gone",), LOST),
    Breakage(
        "page of the bus is broken",
        by.broken_leaf("bus", "messages"),
        ("store.integrity:damaged", "store.whole:damaged"),
        LOST,
        {"bus.blobs:damaged-store": "store.integrity:damaged"},
    ),
    Breakage(
        "page of the audit log is broken",
        by.broken_leaf("audit", "log"),
        ("store.integrity:damaged", "store.whole:damaged"),
        LOST,
        {"audit.chain:unreadable": "store.integrity:damaged"},
    ),
    Breakage(
        "audit log was deleted",
        by.all_of(*map(by.remove_if_there, by.AUDIT_FILES)),
        ("store.record:missing",),
        LOST,
    ),
    Breakage(
        "folder of an agent was removed",
        by.remove(".agentlip/network/anna"),
        ("network.agents:lost",),
        LOST,
    ),
    Breakage(
        "settings of an agent are missing",
        by.remove(".agentlip/network/anna/agent.json"),
        ("network.agents:lost",),
        LOST,
    ),
    Breakage(
        "state of an agent is damaged",
        by.garbage(".agentlip/network/anna/state.sqlite3"),
        ("network.agents:unusable",),
        LOST,
    ),
    Breakage(
        "page of the messages is broken",
        by.broken_page,
        ("store.integrity:damaged", "store.whole:damaged"),
        LOST,
        dict.fromkeys(
            ("events.rows:damaged-store", "events.rows-all:damaged-store"),
            "store.integrity:damaged",
        ),
    ),
    Breakage(
        "store of another workspace",
        by.of_another_workspace("courier"),
        ("store.record:foreign",),
        LOST,
    ),
    Breakage(
        "store of another program",
        by.of_another_program("courier"),
        ("store.schema:foreign",),
        LOST,
    ),
    Breakage(
        "schema of a newer program",
        sql("hub", "UPDATE meta SET value = '99' WHERE key = 'x_compat'"),
        ("store.schema:newer",),
        "the newer program must be installed",
    ),
    Breakage(
        "migration was changed",
        sql("outbox", "UPDATE x_migrations SET sha256 = 'x' WHERE number = 1"),
        ("store.schema:edited",),
        "the program must be installed again",
    ),
    Breakage(
        "store is marked as suspect",
        write(".agentlip/db.sqlite3.suspect", ""),
        ("store.suspect:suspect",),
        "agentlip doctor clear does it",
    ),
    Breakage("older hub was put back", by.older_than_its_note, ("store.record:behind",), LOST),
    Breakage("log has a damaged frame", by.damaged_log, ("store.log:ignored-frames",), LOST),
    Breakage(
        "log was not written back",
        by.log_of_a_killed_process,
        ("store.wal:large",),
        "agentlip doctor --checkpoint does it",
    ),
    Breakage("index misses a row", by.skipped_index, ("store.integrity:damaged-index",)),
    Breakage(
        "index was dropped", sql("hub", "DROP INDEX idx_messages_topic"), ("store.objects:missing",)
    ),
    Breakage(
        "index was altered",
        sql(
            "outbox",
            "DROP INDEX outbox_pending",
            "CREATE INDEX outbox_pending ON outbox (route, next_attempt_at)",
        ),
        ("store.objects:altered",),
    ),
    Breakage(
        "trigger was dropped",
        sql("hub", "DROP TRIGGER prevent_event_delete"),
        ("store.objects:missing",),
    ),
    Breakage(
        "table was dropped",
        sql("hub", "DROP TABLE topic_attachments"),
        ("store.objects:missing",),
        LOST,
    ),
    Breakage(
        "trigger of another program",
        sql(
            "hub",
            "CREATE TRIGGER theirs AFTER INSERT ON messages BEGIN UPDATE messages"
            " SET content_raw = '' WHERE id = new.id; END",
        ),
        ("store.objects:foreign-trigger",),
    ),
    Breakage(
        "column was added",
        sql("auth", "ALTER TABLE tokens ADD COLUMN owner TEXT"),
        ("store.objects:altered",),
        "another program may need the column",
    ),
    Breakage(
        "row refers to nothing",
        sql("hub", "UPDATE topic_attachments SET topic_id = 'nowhere'"),
        ("store.integrity:orphaned-row", *DIFFERS),
        LOST,
    ),
    Breakage("clock was set", by.clock_set, ("host.clock:jumped",), _REPORT),
)
