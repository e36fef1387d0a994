-- What: sends, from acceptance until they are delivered, dead or retired, and their ids for ever; the replies to requests
--   with an Idempotency-Key; a log of each acceptance, each attempt and its end.
-- Why: an answered send must survive the process, and an id that was written is never released:
--   rows are not deleted, only payloads are. Columns beside those of the outbox specification say
--   where a send goes (mesh, target, destination), so that a send needs nothing but its row.
-- opens-with: 1
--
-- `next_attempt_at` and `accepted_steady_ms` are times of a clock that is never set (the note `clock` in meta), so rows need
-- not be moved when the machine's clock is set. `enqueued_at` is what the wall clock showed.
--
-- The log is exported as segments, and rows older than `outbox.log_days` are deleted. `event_id` is never used again, not
-- even after a restore. Payloads are not in it.

CREATE TABLE meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE outbox (
  id TEXT PRIMARY KEY NOT NULL,
  client_message_id TEXT NOT NULL UNIQUE,
  request_fingerprint BLOB NOT NULL CHECK (length(request_fingerprint) = 32),
  payload BLOB NOT NULL,             -- the body's bytes; none once payload_dropped_at is set
  enqueued_at INTEGER NOT NULL,      -- times are milliseconds since 1970
  attempts INTEGER NOT NULL DEFAULT 0,
  next_attempt_at INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('pending', 'inflight', 'done', 'dead', 'aborted')),
  last_error TEXT,
  delivered_at INTEGER,
  broker_message_id TEXT,
  aborted_at INTEGER,
  aborted_by TEXT,
  superseded_by TEXT,                -- id of the row that a requeue made of this one
  mesh TEXT NOT NULL,
  target TEXT NOT NULL,              -- what delivers it: broker, and others by name
  route TEXT NOT NULL,               -- what fails and is slow as one: target and mesh, or host
  destination_kind TEXT NOT NULL CHECK (destination_kind IN ('topic', 'dm', 'queue')),
  destination_ref TEXT NOT NULL,
  reply_to_id TEXT,
  priority TEXT NOT NULL CHECK (priority IN ('now', 'next', 'low')),
  meta TEXT,                         -- JSON, or NULL
  history_id TEXT,
  died_at INTEGER,
  payload_dropped_at INTEGER,
  principal TEXT,  -- NULL: accepted before this column was there
  accepted_steady_ms INTEGER NOT NULL DEFAULT 0,
  traceparent TEXT,  -- NULL: it had none
  CHECK ((status = 'aborted') = (aborted_at IS NOT NULL)),
  CHECK ((status = 'done') = (delivered_at IS NOT NULL)),
  CHECK (superseded_by IS NULL OR status = 'aborted')
) STRICT;

-- What is due, route by route.
CREATE INDEX outbox_pending ON outbox (route, next_attempt_at) WHERE status = 'pending';

-- What has not ended yet, destination by destination, oldest first.
CREATE INDEX outbox_open ON outbox (route, destination_kind, destination_ref)
  WHERE status IN ('pending', 'inflight');

-- Each state but done by itself, oldest first: ids rise with time.
CREATE INDEX outbox_waiting ON outbox (id) WHERE status = 'pending';
CREATE INDEX outbox_inflight ON outbox (id) WHERE status = 'inflight';
CREATE INDEX outbox_dead ON outbox (id) WHERE status = 'dead';
CREATE INDEX outbox_aborted ON outbox (id) WHERE status = 'aborted';
CREATE INDEX outbox_superseded ON outbox (superseded_by) WHERE superseded_by IS NOT NULL;

-- Payloads of delivered sends, for the sweep that drops them.
CREATE INDEX outbox_done ON outbox (delivered_at)
  WHERE status = 'done' AND payload_dropped_at IS NULL;

CREATE INDEX outbox_destination ON outbox (destination_ref, destination_kind, id);

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
