-- What: senders outside the appliance whose signed webhooks become messages or envelopes.
-- Why: operators add one while the appliance runs, and a backup of the hub has them all. The secret is readable here, as in
--   x_webhooks: an HMAC can't be checked with a hash. Ids of deliveries are in x_idempotency, beside all other keys.
-- opens-with: 1

CREATE TABLE x_incoming (
  name TEXT PRIMARY KEY NOT NULL,        -- the last part of the path that the sender calls
  template TEXT NOT NULL CHECK (template IN ('github', 'gitlab', 'alertmanager', 'grafana', 'healthchecks', 'json')),
  secret TEXT NOT NULL,
  signature_header TEXT,                 -- json only: the header with the hexadecimal HMAC
  topic_id TEXT,                         -- in `topics`: where a message is posted
  stream TEXT,                           -- or the courier stream that gets an envelope
  to_json TEXT NOT NULL,                 -- [names] for whom a message is
  created_at TEXT NOT NULL,
  CHECK ((topic_id IS NULL) <> (stream IS NULL))
) STRICT;
