-- What: a log of each acceptance of a send, each attempt to deliver it, and its end.
-- Why: a send's row has only its last state; reports need every attempt. The log is exported as segments, and rows older
--   than `outbox.log_days` are deleted. `event_id` is never used again, not even after a restore: a restore to a file from
--   before this table leaves the first number in meta. Payloads are not in it.
-- opens-with: 1

CREATE TABLE log (
  event_id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  name TEXT NOT NULL,           -- send.accepted, attempt.delivered, attempt.failed, send.dead, .aborted, .requeued
  message_id TEXT NOT NULL,     -- the send's id
  client_message_id TEXT NOT NULL,
  mesh TEXT NOT NULL,
  target TEXT NOT NULL,
  route TEXT NOT NULL,
  destination_kind TEXT NOT NULL,
  destination_ref TEXT NOT NULL,
  priority TEXT NOT NULL,
  principal TEXT,
  attempt INTEGER,              -- of an attempt, from 1
  accepted_ms INTEGER NOT NULL, -- of the send
  broker_message_id TEXT,
  error TEXT
) STRICT;

INSERT INTO sqlite_sequence (name, seq)
SELECT 'log', CAST(value AS INTEGER) FROM meta WHERE key = 'sequence:log';
