-- What: of durable streams also the ids acked lately, every attempt that failed, and pauses.
-- Why: after a start duplicates are still known, histories are whole, and what was paused stays so.
-- opens-with: 2

CREATE TABLE acked (
  stream TEXT NOT NULL,
  slot INTEGER NOT NULL,   -- round and round, so that there are never more than recent_max
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
