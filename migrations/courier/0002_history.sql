-- What: of durable streams also the ids acked lately, attempts that failed, pauses, and the
-- last envelope of each inbox.
-- Why: after a start duplicates are still known, histories are whole, what was paused stays so,
-- and the view latestPerAgent is what it was.
-- opens-with: 2

CREATE TABLE acked (
  stream TEXT NOT NULL,
  slot INTEGER NOT NULL,   -- place modulo recent_max, so that there are never more than those
  place INTEGER NOT NULL,  -- counts up: the order in which they were acked
  id TEXT NOT NULL,
  at_ms INTEGER NOT NULL,
  PRIMARY KEY (stream, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
  number INTEGER NOT NULL REFERENCES journal (number) ON DELETE CASCADE,
  slot INTEGER NOT NULL,   -- counts up; the latest history_max are kept
  at_ms INTEGER NOT NULL,
  holder TEXT NOT NULL,    -- who had it
  outcome TEXT NOT NULL,   -- failed, rejected, lease_expired
  error TEXT NOT NULL,     -- what its taker said
  PRIMARY KEY (number, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE paused (
  stream TEXT PRIMARY KEY NOT NULL,
  until_ms INTEGER         -- NULL: until somebody resumes it
) STRICT;

CREATE TABLE latest (
  stream TEXT PRIMARY KEY NOT NULL,
  body BLOB NOT NULL,
  at_ms INTEGER NOT NULL
) STRICT;
