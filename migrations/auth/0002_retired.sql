-- What: secrets of tokens that were rotated, and until when each still opens.
-- Why: clients that hold the old one get time to read the new one.
-- opens-with: 1

CREATE TABLE retired (
  hash TEXT PRIMARY KEY NOT NULL,  -- SHA-256, hexadecimal
  token_id TEXT NOT NULL REFERENCES tokens (id),
  until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX retired_by_token ON retired (token_id);
