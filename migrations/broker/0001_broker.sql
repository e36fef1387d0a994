-- What: meshes, their members, topics and subscriptions; messages, their history, deliveries and dedupe rows; webhooks with
--   their secrets; nonces of signed requests; a log of what the broker did.
-- Why: the receiver's promise (outbox spec v8, 4.6 and 4.7): a dedupe row exists exactly when the message was accepted.
-- opens-with: 1
--
-- Types and queries are those that PostgreSQL has too, so that it can become a second store. No foreign key leads
-- from the dedupe row to its message: the message may be gone long before.
--
-- A message's created_ms and an id's expires_ms are times of a clock that is never set: the wall clock minus the sum of its
-- jumps (`total_ms` of the note `clock` in meta). created_ms + skew_ms is the time that is shown.
--
-- A signature is for one broker (`broker_id`) and good once, also after a restart. Nonces go when their timestamps are too
-- old to be accepted; `NONCES_MAX` in `broker/access.py` bounds how many there are.
--
-- The log is exported as segments, and rows older than `broker.log_days` are deleted. `event_id` is never used again, not
-- even after a restore. Bodies and secrets are not in it.

CREATE TABLE meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE mesh (
  id TEXT PRIMARY KEY NOT NULL,
  slug TEXT NOT NULL UNIQUE,
  dedupe_mode TEXT NOT NULL CHECK (dedupe_mode IN ('retention_scoped', 'permanent')),
  dedupe_retention_days INTEGER NOT NULL,
  message_retention_days INTEGER NOT NULL,
  concurrency TEXT NOT NULL CHECK (concurrency IN ('prefer_newest', 'prefer_oldest', 'allow_concurrent')),
  created_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE member (
  mesh_id TEXT NOT NULL REFERENCES mesh (id),
  pubkey TEXT NOT NULL,                 -- ed25519, 64 hexadecimal characters
  name TEXT NOT NULL,
  added_ms INTEGER NOT NULL,
  revoked_ms INTEGER,                   -- a revoked key stays, so that it can't be added again
  successor TEXT,                       -- the key that took its place
  PRIMARY KEY (mesh_id, pubkey)
) STRICT;

CREATE UNIQUE INDEX member_name ON member (mesh_id, name) WHERE revoked_ms IS NULL;

CREATE TABLE webhook (
  mesh_id TEXT NOT NULL REFERENCES mesh (id),
  id TEXT NOT NULL,
  url TEXT NOT NULL,
  added_ms INTEGER NOT NULL,
  secret TEXT NOT NULL DEFAULT '',
  former_secret TEXT,
  former_until_ms INTEGER,
  enabled INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
  failing_since_ms INTEGER,
  disabled_because TEXT,
  PRIMARY KEY (mesh_id, id)
) STRICT;

CREATE TABLE place (                    -- a topic or a queue
  mesh_id TEXT NOT NULL REFERENCES mesh (id),
  kind TEXT NOT NULL CHECK (kind IN ('topic', 'queue')),
  name TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  PRIMARY KEY (mesh_id, kind, name)
) STRICT;

CREATE TABLE subscription (
  mesh_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  subscriber TEXT NOT NULL,             -- a member's key, or 'webhook:' and an id
  since_ms INTEGER NOT NULL,
  PRIMARY KEY (mesh_id, kind, name, subscriber),
  FOREIGN KEY (mesh_id, kind, name) REFERENCES place (mesh_id, kind, name)
) STRICT;

CREATE INDEX subscription_of ON subscription (mesh_id, subscriber);

CREATE TABLE client_message_dedupe (
  mesh_id TEXT NOT NULL,
  client_message_id TEXT NOT NULL,
  broker_message_id TEXT NOT NULL,
  history_id TEXT NOT NULL,
  request_fingerprint BLOB NOT NULL CHECK (length(request_fingerprint) = 32),
  destination_kind TEXT NOT NULL CHECK (destination_kind IN ('topic', 'dm', 'queue')),
  destination_ref TEXT NOT NULL,
  first_seen_ms INTEGER NOT NULL,
  expires_ms INTEGER,                   -- NULL: permanent
  history_available INTEGER NOT NULL DEFAULT 1 CHECK (history_available IN (0, 1)),
  sender_pubkey TEXT,
  PRIMARY KEY (mesh_id, client_message_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX dedupe_expires ON client_message_dedupe (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX dedupe_message ON client_message_dedupe (broker_message_id);

CREATE TABLE topic_message (
  id TEXT PRIMARY KEY NOT NULL,
  mesh_id TEXT NOT NULL,
  client_message_id TEXT,
  topic TEXT NOT NULL,
  sender_pubkey TEXT NOT NULL,
  sender_name TEXT NOT NULL,
  priority TEXT NOT NULL CHECK (priority IN ('now', 'next', 'low')),
  meta TEXT,                            -- JSON
  body TEXT NOT NULL,
  reply_to_id TEXT,
  created_ms INTEGER NOT NULL,
  skew_ms INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX topic_message_age ON topic_message (mesh_id, created_ms);

CREATE TABLE message_queue (            -- what is sent to one member, or to a queue
  id TEXT PRIMARY KEY NOT NULL,
  mesh_id TEXT NOT NULL,
  client_message_id TEXT,
  destination_kind TEXT NOT NULL CHECK (destination_kind IN ('dm', 'queue')),
  destination_ref TEXT NOT NULL,
  sender_pubkey TEXT NOT NULL,
  sender_name TEXT NOT NULL,
  priority TEXT NOT NULL CHECK (priority IN ('now', 'next', 'low')),
  meta TEXT,
  body TEXT NOT NULL,
  reply_to_id TEXT,
  created_ms INTEGER NOT NULL,
  skew_ms INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX message_queue_age ON message_queue (mesh_id, created_ms);

CREATE TABLE message_history (          -- ids rise in the order of acceptance: the log to replay
  id TEXT PRIMARY KEY NOT NULL,
  mesh_id TEXT NOT NULL,
  broker_message_id TEXT NOT NULL,
  destination_kind TEXT NOT NULL,
  destination_ref TEXT NOT NULL,
  sender_pubkey TEXT NOT NULL,
  created_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX history_message ON message_history (broker_message_id);
CREATE INDEX history_mesh ON message_history (mesh_id, id);

CREATE TABLE delivery_queue (           -- work outstanding: a row goes when its receiver has said so
  id INTEGER PRIMARY KEY,
  mesh_id TEXT NOT NULL,
  broker_message_id TEXT NOT NULL,
  recipient TEXT NOT NULL,              -- a member's key, 'queue:' and a name, 'webhook:' and an id
  kind TEXT NOT NULL CHECK (kind IN ('topic', 'dm', 'queue')),
  rank INTEGER NOT NULL,                -- of the priority: 0 now, 1 next, 2 low
  ready_ms INTEGER NOT NULL,            -- not before
  lease_owner TEXT,                     -- NULL: nobody has it
  lease_until_ms INTEGER,
  attempts INTEGER NOT NULL DEFAULT 0,
  created_ms INTEGER NOT NULL,
  last_error TEXT
) STRICT;

CREATE INDEX delivery_ready ON delivery_queue (mesh_id, recipient, rank, id) WHERE lease_owner IS NULL;
CREATE INDEX delivery_leased ON delivery_queue (lease_until_ms) WHERE lease_owner IS NOT NULL;
CREATE INDEX delivery_message ON delivery_queue (broker_message_id);

CREATE TABLE mention_index (
  mesh_id TEXT NOT NULL,
  mentioned_pubkey TEXT NOT NULL,
  broker_message_id TEXT NOT NULL,
  PRIMARY KEY (mesh_id, mentioned_pubkey, broker_message_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX mention_message ON mention_index (broker_message_id);

CREATE TABLE message_tombstone (        -- a message that was removed while its dedupe row stays
  broker_message_id TEXT PRIMARY KEY NOT NULL,
  mesh_id TEXT NOT NULL,
  removed_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('broker_id', lower(hex(randomblob(16))));

CREATE TABLE used_nonce (
  expires_ms INTEGER NOT NULL,
  digest BLOB NOT NULL CHECK (length(digest) = 16),  -- of the member's key and the nonce
  member TEXT NOT NULL,
  PRIMARY KEY (expires_ms, digest)
) STRICT, WITHOUT ROWID;

CREATE TABLE log (
  event_id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  name TEXT NOT NULL,           -- message.accepted, delivery.sent, .acked, .failed, .dead
  mesh_id TEXT NOT NULL,
  message_id TEXT NOT NULL,
  client_message_id TEXT,
  destination_kind TEXT NOT NULL,
  destination_ref TEXT NOT NULL,
  sender_pubkey TEXT NOT NULL,
  recipient TEXT,               -- of a delivery
  attempt INTEGER,              -- of a delivery, from 1
  accepted_ms INTEGER NOT NULL, -- of the message
  error TEXT
) STRICT;
