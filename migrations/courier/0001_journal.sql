-- What: envelopes of the courier's durable streams, from acceptance to ack.
-- Why: a durable stream must not forget what it accepted when the process ends.
-- opens-with: 1

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
