-- What: channels, topics, messages, the event log, attachments and enrichments of the hub.
-- Why: the contract of the hub specification, section 3.1. Other programs read these tables, so
--   they stay exactly as printed there; what we need besides has the prefix x_ (0002 and later).
--   The rows of meta (db_id, schema_version, created_at) are added by the program that migrates.
-- opens-with: 1

CREATE TABLE IF NOT EXISTS meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;

-- Required keys:
-- 'db_id': UUIDv4 generated at init, never changes
-- 'schema_version': integer, current version
-- 'created_at': ISO8601 timestamp

CREATE TABLE IF NOT EXISTS channels (
  id TEXT PRIMARY KEY NOT NULL,  -- UUIDv4 or ULID
  name TEXT NOT NULL UNIQUE,
  description TEXT,
  created_at TEXT NOT NULL,      -- ISO8601
  CHECK (length(name) > 0 AND length(name) <= 100)
) STRICT;

CREATE TABLE IF NOT EXISTS topics (
  id TEXT PRIMARY KEY NOT NULL,
  channel_id TEXT NOT NULL,
  title TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  FOREIGN KEY (channel_id) REFERENCES channels(id) ON DELETE CASCADE,
  UNIQUE(channel_id, title),
  CHECK (length(title) > 0 AND length(title) <= 200)
) STRICT;

CREATE INDEX IF NOT EXISTS idx_topics_channel ON topics(channel_id, updated_at DESC);

CREATE TABLE IF NOT EXISTS messages (
  id TEXT PRIMARY KEY NOT NULL,
  topic_id TEXT NOT NULL,
  channel_id TEXT NOT NULL,      -- denormalized for fast filtering
  sender TEXT NOT NULL,
  content_raw TEXT NOT NULL,
  version INTEGER NOT NULL DEFAULT 1,
  created_at TEXT NOT NULL,
  edited_at TEXT,
  deleted_at TEXT,
  deleted_by TEXT,
  FOREIGN KEY (topic_id) REFERENCES topics(id) ON DELETE CASCADE,
  CHECK (length(sender) > 0),
  CHECK (length(content_raw) <= 65536),  -- 64KB limit
  CHECK (version >= 1)
) STRICT;

CREATE INDEX IF NOT EXISTS idx_messages_topic ON messages(topic_id, id DESC);
CREATE INDEX IF NOT EXISTS idx_messages_channel ON messages(channel_id, id DESC);
CREATE INDEX IF NOT EXISTS idx_messages_created ON messages(created_at DESC);

-- Trigger: prevent hard deletes
CREATE TRIGGER IF NOT EXISTS prevent_message_delete
BEFORE DELETE ON messages
FOR EACH ROW
BEGIN
  SELECT RAISE(ABORT, 'Hard deletes forbidden on messages; use tombstone');
END;

CREATE TABLE IF NOT EXISTS events (
  event_id INTEGER PRIMARY KEY AUTOINCREMENT,
  ts TEXT NOT NULL,              -- ISO8601
  name TEXT NOT NULL,            -- event type (e.g., 'message.created')
  scope_channel_id TEXT,         -- for channel-level routing
  scope_topic_id TEXT,           -- primary topic
  scope_topic_id2 TEXT,          -- secondary topic (for retopic)
  entity_type TEXT NOT NULL,     -- 'channel', 'topic', 'message', etc.
  entity_id TEXT NOT NULL,
  data_json TEXT NOT NULL,       -- JSON payload
  CHECK (length(name) > 0)
) STRICT;

CREATE INDEX IF NOT EXISTS idx_events_replay ON events(event_id);
CREATE INDEX IF NOT EXISTS idx_events_scope_channel ON events(scope_channel_id, event_id);
CREATE INDEX IF NOT EXISTS idx_events_scope_topic ON events(scope_topic_id, event_id);
CREATE INDEX IF NOT EXISTS idx_events_scope_topic2 ON events(scope_topic_id2, event_id);

-- Trigger: prevent updates/deletes
CREATE TRIGGER IF NOT EXISTS prevent_event_mutation
BEFORE UPDATE ON events
FOR EACH ROW
BEGIN
  SELECT RAISE(ABORT, 'Events are immutable');
END;

CREATE TRIGGER IF NOT EXISTS prevent_event_delete
BEFORE DELETE ON events
FOR EACH ROW
BEGIN
  SELECT RAISE(ABORT, 'Events are append-only');
END;

CREATE TABLE IF NOT EXISTS topic_attachments (
  id TEXT PRIMARY KEY NOT NULL,
  topic_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT,                      -- optional namespace (e.g., 'url', 'file')
  value_json TEXT NOT NULL,      -- JSON object
  dedupe_key TEXT NOT NULL,      -- idempotency key
  source_message_id TEXT,
  created_at TEXT NOT NULL,
  FOREIGN KEY (topic_id) REFERENCES topics(id) ON DELETE CASCADE,
  FOREIGN KEY (source_message_id) REFERENCES messages(id) ON DELETE SET NULL,
  CHECK (length(kind) > 0),
  CHECK (length(dedupe_key) > 0),
  CHECK (length(value_json) <= 16384)  -- 16KB limit
) STRICT;

CREATE INDEX IF NOT EXISTS idx_attachments_topic ON topic_attachments(topic_id, created_at DESC);
CREATE UNIQUE INDEX IF NOT EXISTS idx_topic_attachments_dedupe
  ON topic_attachments(topic_id, kind, COALESCE(key, ''), dedupe_key);

CREATE TABLE IF NOT EXISTS enrichments (
  id TEXT PRIMARY KEY NOT NULL,
  message_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  span_start INTEGER NOT NULL,
  span_end INTEGER NOT NULL,
  data_json TEXT NOT NULL,
  created_at TEXT NOT NULL,
  FOREIGN KEY (message_id) REFERENCES messages(id) ON DELETE CASCADE,
  CHECK (span_start >= 0),
  CHECK (span_end > span_start),
  CHECK (length(kind) > 0)
) STRICT;

CREATE INDEX IF NOT EXISTS idx_enrichments_message ON enrichments(message_id, created_at DESC);
