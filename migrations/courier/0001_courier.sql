-- What: envelopes of the courier's durable streams, from acceptance to ack; ids acked lately, attempts that failed, pauses,
--   and the last envelope of each inbox; a log of how leases and envelopes ended.
-- Why: a durable stream must not forget what it accepted when the process ends. After a start, duplicates are still known,
--   histories are whole, what was paused stays so, and the view latestPerAgent is what it was.
-- opens-with: 1
--
-- An envelope leaves no row once it is acked; reports need its outcome. The log has all outcomes of durable streams, and a
-- sample of the others. It is exported as segments, and rows older than `courier.log_days` are deleted. `event_id` is never
-- used again, not even after a restore. Payloads are not in it.

CREATE TABLE meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE journal (
  number INTEGER PRIMARY KEY AUTOINCREMENT, -- order of acceptance
  stream TEXT NOT NULL,
  id TEXT NOT NULL,                         -- the envelope's; the stream keeps it unique
  body BLOB NOT NULL,                       -- the envelope's JSON
  priority INTEGER NOT NULL,
  key TEXT,                                 -- partitionKey
  accepted_ms INTEGER NOT NULL,
  due_ms INTEGER,                           -- NULL: at once
  expires_ms INTEGER,                       -- NULL: never
  attempts INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  reason TEXT,                              -- why it is dead; NULL: it lives
  error TEXT NOT NULL DEFAULT ''            -- what its last taker said
) STRICT;

CREATE TABLE acked (
  stream TEXT NOT NULL,
  slot INTEGER NOT NULL,   -- place modulo recent_max, so that there are never more than those
  place INTEGER NOT NULL,  -- counts up: the order in which they were acked
  id TEXT NOT NULL,
  at_ms INTEGER NOT NULL,
  PRIMARY KEY (stream, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
  number INTEGER NOT NULL REFERENCES journal (number) ON DELETE CASCADE,
  slot INTEGER NOT NULL,   -- counts up; the latest history_max are kept
  at_ms INTEGER NOT NULL,
  holder TEXT NOT NULL,    -- who had it
  outcome TEXT NOT NULL,   -- failed, rejected, lease_expired
  error TEXT NOT NULL,     -- what its taker said
  PRIMARY KEY (number, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE paused (
  stream TEXT PRIMARY KEY NOT NULL,
  until_ms INTEGER         -- NULL: until somebody resumes it
) STRICT;

CREATE TABLE latest (
  stream TEXT PRIMARY KEY NOT NULL,
  body BLOB NOT NULL,
  at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE log (
  event_id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  name TEXT NOT NULL,           -- envelope.acked, .failed, .rejected, .expired, .dead
  stream TEXT NOT NULL,
  durability TEXT NOT NULL CHECK (durability IN ('durable', 'memory')),
  sample_rate REAL NOT NULL,    -- share of the outcomes that is recorded
  message_id TEXT NOT NULL,     -- the envelope's id
  consumer TEXT,                -- who had the lease
  attempt INTEGER,              -- number of the delivery, from 1
  accepted_ms INTEGER NOT NULL,
  delivered_ms INTEGER,         -- when that lease began
  error TEXT
) STRICT;
