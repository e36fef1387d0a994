-- What: a log of how leases and envelopes ended: acks, failures, rejections, expiries, dead letters.
-- Why: an envelope leaves no row once it is acked; reports need its outcome. All of durable streams, a sample of the others.
--   The log is exported as segments, and rows older than `courier.log_days` are deleted. `event_id` is never used again, not
--   even after a restore: a restore to a file from before this table leaves the first number in meta. Payloads are not in it.
-- opens-with: 2

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

INSERT INTO sqlite_sequence (name, seq)
SELECT 'log', CAST(value AS INTEGER) FROM meta WHERE key = 'sequence:log';
