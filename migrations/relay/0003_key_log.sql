-- What: the key log, key recoveries that wait for their hour, and how often an agent denied another.
-- Why: entries form a hash chain whose head the relay signs. Agents pin the head, so the relay can't show different keys to
--   different agents, nor forget a key, without being found out.
-- opens-with: 3

CREATE TABLE key_log (
  number INTEGER PRIMARY KEY NOT NULL,  -- without gaps, from 1
  at_ms INTEGER NOT NULL,
  event TEXT NOT NULL CHECK (event IN ('known', 'registered', 'rotated', 'recovered', 'revoked', 'lost')),
  agent TEXT NOT NULL,
  public_key TEXT NOT NULL,
  hash TEXT NOT NULL                    -- SHA-256 over the hash before and this entry
) STRICT;
CREATE INDEX key_log_agent ON key_log (agent, number);

CREATE TABLE recoveries (
  agent TEXT PRIMARY KEY NOT NULL,
  public_key TEXT NOT NULL,
  requested_ms INTEGER NOT NULL,
  due_ms INTEGER NOT NULL               -- when the key takes effect
) STRICT, WITHOUT ROWID;
CREATE INDEX recoveries_due ON recoveries (due_ms);

CREATE TABLE denials (
  agent TEXT NOT NULL,                  -- who denied
  requester TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (agent, requester)
) STRICT, WITHOUT ROWID;
