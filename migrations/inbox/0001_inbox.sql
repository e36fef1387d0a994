-- What: messages received from meshes, each once; what this appliance subscribed to and says of itself there; meshes whose
--   broker has revoked its key; the runs of hooks.
-- Why: a message is acked only when it is a row here, and a repetition finds the row. Ids are unique within a mesh: one mesh
--   must not be able to use up the ids of another. Sends to a mesh that revoked the key are refused at once, also after a
--   restart. Runs are stored with their message, so that a killed appliance runs them after its start.
-- opens-with: 1

CREATE TABLE meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE inbox (
  number INTEGER PRIMARY KEY AUTOINCREMENT, -- order of arrival; the cursor of readers
  id TEXT NOT NULL UNIQUE,
  client_message_id TEXT NOT NULL,
  broker_message_id TEXT,
  mesh TEXT NOT NULL,
  topic TEXT,
  sender_pubkey TEXT NOT NULL,
  sender_name TEXT NOT NULL,
  body TEXT,
  meta TEXT,                                -- JSON
  received_at INTEGER NOT NULL,             -- milliseconds since 1970
  reply_to_id TEXT,
  destination_kind TEXT NOT NULL CHECK (destination_kind IN ('topic', 'dm', 'queue')),
  destination_ref TEXT NOT NULL,
  priority TEXT NOT NULL CHECK (priority IN ('now', 'next', 'low')),
  created_at TEXT NOT NULL,                 -- as the broker says
  own INTEGER NOT NULL CHECK (own IN (0, 1)), -- we sent it ourselves
  UNIQUE (mesh, client_message_id)
) STRICT;
CREATE INDEX inbox_mesh ON inbox (mesh, number);
CREATE INDEX inbox_received_at ON inbox (received_at);
CREATE INDEX inbox_topic ON inbox (mesh, topic, number);
CREATE INDEX inbox_sender_pubkey ON inbox (mesh, sender_pubkey, number);

CREATE TABLE topics (
  mesh TEXT NOT NULL,
  topic TEXT NOT NULL,
  subscribed_at INTEGER NOT NULL,
  PRIMARY KEY (mesh, topic)
) STRICT, WITHOUT ROWID;

CREATE TABLE profiles (
  mesh TEXT PRIMARY KEY NOT NULL,
  summary TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('idle', 'working', 'dnd')),
  visible INTEGER NOT NULL CHECK (visible IN (0, 1)),
  changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE hook_runs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  at INTEGER NOT NULL,
  hook TEXT NOT NULL,
  event TEXT NOT NULL,
  mesh TEXT NOT NULL,
  inbox_id TEXT,
  outcome TEXT NOT NULL,                    -- ok, failed, timeout, not_started, off, busy
  exit_code INTEGER,
  duration_ms INTEGER NOT NULL,
  truncated INTEGER NOT NULL CHECK (truncated IN (0, 1)),
  said_bytes INTEGER NOT NULL,
  acts TEXT NOT NULL,                       -- JSON: what it did by its scopes, without contents
  command INTEGER
) STRICT;
CREATE INDEX hook_runs_at ON hook_runs (at);

CREATE TABLE revoked (
  mesh TEXT PRIMARY KEY NOT NULL,
  pubkey TEXT NOT NULL,
  since_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX hook_runs_waiting ON hook_runs (number) WHERE outcome = 'waiting';
