-- What: sends by their destination; the answers given to an operator's requests that carried an Idempotency-Key.
-- Why: looking for what went to one receiver must not read what went to all; and a requeue that is repeated must not
--   requeue twice, also after a crash. Older programs pass an index and an unknown x_ table by.
-- opens-with: 1

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
