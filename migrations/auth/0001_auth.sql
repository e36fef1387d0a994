-- What: who may do what: hashes of tokens and their scopes.
-- Why: present whatever other stores are; a token itself is never stored.
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
  last_used_ms INTEGER           -- NULL: never used
) STRICT;
