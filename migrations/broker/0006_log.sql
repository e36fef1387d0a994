-- What: a log of what the broker did: each message accepted, each delivery, and how it ended.
-- Why: reports about delivery need facts that the other tables forget when a delivery is done. The log is exported as
--   segments, and rows older than `broker.log_days` are deleted. `event_id` is never used again, not even after a restore:
--   a restore to a file from before this table leaves the first number in meta. Bodies and secrets are not in it.
-- opens-with: 1

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

INSERT INTO sqlite_sequence (name, seq)
SELECT 'log', CAST(value AS INTEGER) FROM meta WHERE key = 'sequence:log';
