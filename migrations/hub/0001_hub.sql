-- What: channels, topics, messages, the event log, attachments and enrichments of the hub; below them, what the appliance
--   stores beside them: replies to requests with an Idempotency-Key, webhooks, how far each plugin has followed the event log,
--   the principal of each message, and questions that wait for a person.
-- Why: the first part is the contract of the hub specification, section 3.1. Other programs read and write these tables, so
--   they stay exactly as printed there, and a file that another program made is used as it is. What we need besides has the
--   prefix x_, which other programs pass by. The rows of meta (db_id, schema_version, created_at) are added by the program
--   that migrates.
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

-- The appliance's own tables.
--
-- x_webhooks: a registration and its cursor are in the file of the events that it counts. The secrets are readable here, for
-- they sign: an HMAC can't be made with a hash. They are as safe as the file, which only its owner may read. Ids of deliveries
-- carry the generation, so that replayed events get new ones. Since when a receiver fails has to outlive a restart, or a dead
-- one would never be given up.
--
-- x_plugin_cursors, x_enrichment_sets: the table enrichments has no room for who found something in which text, which is needed
-- to replace it and to know that it is old.
--
-- x_message_principals: `sender` is what the caller says; who it was stands beside it, written in the same transaction.
-- Messages without a row are of another program.
--
-- x_asks: an answer is stored exactly once, in the transaction of the message that shows it. The message can be edited or
-- moved; what a person is asked must not change, so the text is here too. `due_steady_ms` is a time of the steady clock (the
-- note `clock` in meta).

CREATE TABLE x_idempotency (
  principal TEXT NOT NULL,
  method TEXT NOT NULL,
  route TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint TEXT NOT NULL,     -- of the request's body: another one under this key is refused
  status INTEGER NOT NULL,
  reply BLOB NOT NULL,
  created_ms INTEGER NOT NULL,
  PRIMARY KEY (principal, method, route, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX x_idempotency_created ON x_idempotency(created_ms);

CREATE TABLE x_webhooks (
  id TEXT PRIMARY KEY NOT NULL,
  url TEXT NOT NULL,
  description TEXT NOT NULL,
  wanted_json TEXT NOT NULL,     -- {"names": […], "channels": [ids], "topics": [ids]}
  enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  cursor INTEGER NOT NULL,       -- event_id up to which it has been served
  secret TEXT NOT NULL,
  former_secret TEXT,            -- signs too, until former_until_ms
  former_until_ms INTEGER,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  generation INTEGER NOT NULL DEFAULT 0,
  failing_since_ms INTEGER,
  disabled_because TEXT,
  CHECK (cursor >= 0)
) STRICT;

CREATE TABLE x_plugin_cursors (
  plugin TEXT PRIMARY KEY NOT NULL,
  cursor INTEGER NOT NULL,       -- event_id up to which everything has been dealt with
  redo_cursor INTEGER,           -- the same for what was asked for again, while there is some
  redo_until INTEGER,
  updated_at TEXT NOT NULL,
  CHECK (cursor >= 0),
  CHECK ((redo_cursor IS NULL) = (redo_until IS NULL))
) STRICT;

CREATE TABLE x_enrichment_sets (
  message_id TEXT NOT NULL,
  plugin TEXT NOT NULL,
  version INTEGER NOT NULL,      -- of the message, when they were found
  content_hash BLOB NOT NULL,    -- SHA-256 of the text they were found in
  enrichment_ids TEXT NOT NULL,  -- a JSON list of ids in enrichments
  PRIMARY KEY (message_id, plugin),
  FOREIGN KEY (message_id) REFERENCES messages(id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE x_message_principals (
  message_id TEXT PRIMARY KEY NOT NULL,
  principal TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE x_asks (
  id TEXT PRIMARY KEY NOT NULL,
  message_id TEXT NOT NULL UNIQUE,       -- the question in `messages`
  channel_id TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'answered', 'defaulted', 'expired', 'cancelled')),
  asker TEXT NOT NULL,                   -- the sender of the question
  principal TEXT,                        -- who created it, as in x_message_principals
  principal_id TEXT NOT NULL,
  key TEXT,                              -- the same key of the same principal is the same ask
  fingerprint TEXT NOT NULL,             -- of the request with that key
  text TEXT NOT NULL,
  choices_json TEXT NOT NULL,            -- [texts]; empty: free text
  default_answer TEXT,                   -- the answer at the deadline
  may_answer_json TEXT NOT NULL,         -- [names of tokens]; empty: all with the scope
  blocks_json TEXT NOT NULL,             -- [what waits for the answer]
  mail_to_json TEXT NOT NULL,            -- [addresses] that get a link to answer by
  mailed INTEGER NOT NULL CHECK (mailed IN (0, 1)),  -- whether the outbox has these mails
  created_at TEXT NOT NULL,
  due_steady_ms INTEGER,                 -- the deadline
  answer TEXT,
  settled_by TEXT,                       -- the sender of the reply
  settled_principal TEXT,
  settled_via TEXT CHECK (settled_via IN ('api', 'mail', 'webhook', 'deadline')),
  settled_at TEXT,
  reply_id TEXT,                         -- the reply in `messages`
  CHECK ((state = 'waiting') = (settled_at IS NULL))
) STRICT;

CREATE INDEX x_asks_state ON x_asks (state, id);
CREATE UNIQUE INDEX x_asks_key ON x_asks (principal_id, key) WHERE key IS NOT NULL;
CREATE INDEX x_asks_open ON x_asks (principal_id) WHERE state = 'waiting';
CREATE INDEX x_asks_due ON x_asks (due_steady_ms) WHERE state = 'waiting';
CREATE INDEX x_asks_unmailed ON x_asks (id) WHERE mailed = 0;
