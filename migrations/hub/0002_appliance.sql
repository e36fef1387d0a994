-- What: the answers given to requests that carried an Idempotency-Key.
-- Why: a retry must get the first answer again, also after a crash, so the answer is stored in
--   the same transaction as what it speaks of. Older programs pass an unknown x_ table by.
-- opens-with: 1

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
