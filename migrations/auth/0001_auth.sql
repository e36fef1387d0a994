-- What: who may do what: tokens and their scopes, secrets that were rotated, sign-ins of browsers.
-- Why: a secret is never stored, only its hash. A rotated secret stays valid for a while, so that clients get time to read
--   the new one. A page has no safe place for a token; a session has the rights of its token and ends with it.
-- opens-with: 1

CREATE TABLE meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE tokens (
  id TEXT PRIMARY KEY NOT NULL,
  name TEXT NOT NULL,
  hash TEXT NOT NULL UNIQUE,     -- SHA-256, hexadecimal
  scopes TEXT NOT NULL,          -- JSON array of strings
  created_ms INTEGER NOT NULL,
  expires_ms INTEGER,            -- NULL: never
  revoked_ms INTEGER,            -- NULL: in force
  last_used_ms INTEGER,          -- NULL: never used
  senders TEXT  -- JSON array of strings; NULL: any
) STRICT;

CREATE TABLE retired (
  hash TEXT PRIMARY KEY NOT NULL,  -- SHA-256, hexadecimal
  token_id TEXT NOT NULL REFERENCES tokens (id),
  until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX retired_by_token ON retired (token_id);

CREATE TABLE sessions (
  id TEXT PRIMARY KEY NOT NULL,
  token_id TEXT NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
  token_hash TEXT NOT NULL,      -- the secret of the token: once it is replaced, the session ends
  hash TEXT NOT NULL UNIQUE,     -- SHA-256 of the session's or the link's secret, hexadecimal
  state TEXT NOT NULL CHECK (state IN ('link', 'used', 'open')),
  created_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_by_token ON sessions (token_id, created_ms);
