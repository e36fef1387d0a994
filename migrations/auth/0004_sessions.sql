-- What: sign-ins of browsers, and the links that invite to one.
-- Why: a page has no safe place for a token; a session has the rights of its token and ends with it.
-- opens-with: 1

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
