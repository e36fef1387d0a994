-- What: the broker's id, and the nonces of signed requests that changed something.
-- Why: a signature is for one broker and good once, also after a restart. Rows go when their timestamps are too old to be
--   accepted; `broker.nonces_max` bounds how many there are.
-- opens-with: 1

INSERT INTO meta (key, value) VALUES ('broker_id', lower(hex(randomblob(16))));

CREATE TABLE used_nonce (
  expires_ms INTEGER NOT NULL,
  digest BLOB NOT NULL CHECK (length(digest) = 16),  -- of the member's key and the nonce
  member TEXT NOT NULL,
  PRIMARY KEY (expires_ms, digest)
) STRICT, WITHOUT ROWID;
