-- What: agents with their keys, verifications of mail addresses, contacts, admins, broadcasts, signatures of requests that
--   were used, messages of version 1 of the protocol, approvals, and a log of administrative acts.
-- Why: the relay knows who is on the network and who knows whom. Messages go from agent to agent; only those of version 1 rest
--   on the relay until their recipients read them, for 30 days after `v1` of `relay.options` was first set.
-- opens-with: 1

CREATE TABLE meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;
INSERT INTO meta (key, value) VALUES ('code_key', lower(hex(randomblob(32))));

CREATE TABLE agents (
  name TEXT PRIMARY KEY NOT NULL,
  public_key TEXT NOT NULL UNIQUE,      -- base64 of SPKI
  owner_email TEXT NOT NULL,
  endpoint TEXT,
  version TEXT NOT NULL,                -- of the newest envelopes that it opens
  status TEXT NOT NULL CHECK (status IN ('pending', 'active', 'revoked')),
  address TEXT NOT NULL,                -- of the client that registered it
  created_ms INTEGER NOT NULL,
  decided_by TEXT,                      -- the admin that approved or revoked it
  decided_ms INTEGER,
  last_seen_ms INTEGER,
  former_key TEXT,
  rotation TEXT,                        -- signature of the rotation by the former key
  reach_problem TEXT,                   -- why its endpoint was not reachable; empty: it was
  reach_ms INTEGER
) STRICT;
CREATE INDEX agents_email ON agents (owner_email);
CREATE INDEX agents_address ON agents (address, created_ms);
CREATE INDEX agents_pending ON agents (created_ms) WHERE status = 'pending';

CREATE TABLE verifications (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  agent TEXT NOT NULL,
  email TEXT NOT NULL,
  code BLOB NOT NULL,                   -- HMAC of the six digits
  public_key TEXT,                      -- if given, only this key can be registered
  attempts INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,          -- of the code; once it is verified, of the verification
  verified_ms INTEGER
) STRICT;
CREATE INDEX verifications_agent ON verifications (agent);
CREATE INDEX verifications_expires ON verifications (expires_ms);

CREATE TABLE contacts (
  agent_a TEXT NOT NULL,                -- the first in alphabetical order
  agent_b TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('pending', 'active')),
  requested_by TEXT NOT NULL,
  greeting TEXT,
  requested_ms INTEGER NOT NULL,
  accepted_ms INTEGER,
  PRIMARY KEY (agent_a, agent_b),
  CHECK (agent_a < agent_b)
) STRICT, WITHOUT ROWID;
CREATE INDEX contacts_b ON contacts (agent_b);

CREATE TABLE contact_events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  agent TEXT NOT NULL,                  -- who is told
  contact TEXT NOT NULL,
  event TEXT NOT NULL CHECK (event IN ('requested', 'accepted', 'removed', 'revoked', 'rotated')),
  at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX contact_events_agent ON contact_events (agent, id);
CREATE INDEX contact_events_at ON contact_events (at_ms);

CREATE TABLE admins (
  agent TEXT PRIMARY KEY NOT NULL,
  public_key TEXT NOT NULL UNIQUE,
  added_ms INTEGER NOT NULL,
  removed_ms INTEGER
) STRICT;

CREATE TABLE broadcasts (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  type TEXT NOT NULL,
  payload TEXT NOT NULL,                -- as it was signed
  sender TEXT NOT NULL,
  signature TEXT NOT NULL UNIQUE,       -- a broadcast can't be repeated by who has seen it
  created_ms INTEGER NOT NULL
) STRICT;

-- The key comes first: SQLite's quick_check reports NULL values in such a table otherwise.
CREATE TABLE used_signature (
  digest BLOB PRIMARY KEY NOT NULL CHECK (length(digest) = 32),
  expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX used_signature_expires ON used_signature (expires_ms);

CREATE TABLE log (
  event_id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  name TEXT NOT NULL,                   -- agent.registered, .approved, .revoked, .rotated; admin.added, .removed; broadcast.sent
  agent TEXT NOT NULL,
  admin TEXT
) STRICT;

CREATE TABLE v1_messages (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  recipient TEXT NOT NULL,
  sender TEXT NOT NULL,
  message_id TEXT NOT NULL,
  nonce TEXT NOT NULL,
  body TEXT,                            -- JSON as it was sent; empty once it is acked
  at_ms INTEGER NOT NULL,
  UNIQUE (sender, nonce)
) STRICT;
CREATE INDEX v1_messages_recipient ON v1_messages (recipient, number) WHERE body IS NOT NULL;

CREATE TABLE approvals (
  agent TEXT NOT NULL,
  admin TEXT NOT NULL,
  ask_id TEXT,                          -- of the question to this admin that waits
  approved_ms INTEGER,
  PRIMARY KEY (agent, admin)
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_asked ON approvals (ask_id) WHERE ask_id IS NOT NULL;
