-- What: pauses, a day's ceilings for a name, what it has used today, and how long agents have answered each other in a topic.
-- Why: an agent that runs in circles has to be stopped from outside, by a person or by a limit, and must stay stopped through
--   a restart. Every kind of pause is a row here, so each place asks one table.
-- opens-with: 1

-- One pause for each subject. `subject`: a sender's or token's name, a topic's id, or empty for all. `until_steady_ms`: a time
-- of the steady clock; NULL: until somebody lifts it. `ask_id`: the question whether the topic may go on.

CREATE TABLE x_pauses (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind IN ('principal', 'topic', 'all')),
  subject TEXT NOT NULL,
  cause TEXT NOT NULL CHECK (cause IN ('operator', 'ceiling', 'hops')),
  paused_by TEXT NOT NULL,
  paused_at TEXT NOT NULL,
  reason TEXT,
  until_steady_ms INTEGER,
  ask_id TEXT,
  UNIQUE (kind, subject),
  CHECK ((kind = 'all') = (subject = ''))
) STRICT;

-- The agents' pauses move here. Nothing reads their columns in `x_agents` now.

INSERT INTO x_pauses (kind, subject, cause, paused_by, paused_at, reason, until_steady_ms)
  SELECT 'principal', name, 'operator', paused_by, paused_at, paused_because, paused_until_steady_ms
  FROM x_agents WHERE paused_by IS NOT NULL;
UPDATE x_agents SET paused_by = NULL, paused_at = NULL, paused_because = NULL, paused_until_steady_ms = NULL
  WHERE paused_by IS NOT NULL;

-- NULL: no ceiling of this kind.

CREATE TABLE x_ceilings (
  name TEXT PRIMARY KEY NOT NULL,
  messages INTEGER,
  turns INTEGER,
  claims INTEGER,
  tokens INTEGER,
  cost REAL,
  set_by TEXT NOT NULL,
  set_at TEXT NOT NULL,
  CHECK (length(name) > 0)
) STRICT, WITHOUT ROWID;

-- Only names with a ceiling are counted. `granted`: how often the operator granted the day's ceiling again.

CREATE TABLE x_usage (
  name TEXT NOT NULL,
  day TEXT NOT NULL,             -- UTC, as 2026-02-04
  messages INTEGER NOT NULL DEFAULT 0,
  turns INTEGER NOT NULL DEFAULT 0,
  claims INTEGER NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0,
  cost REAL NOT NULL DEFAULT 0,
  granted INTEGER NOT NULL DEFAULT 0,
  warned INTEGER NOT NULL DEFAULT 0 CHECK (warned IN (0, 1)),
  PRIMARY KEY (name, day)
) STRICT, WITHOUT ROWID;

-- `sender`: the agent that wrote the topic's last message; a person's message removes the row.

CREATE TABLE x_hops (
  topic_id TEXT PRIMARY KEY NOT NULL,
  sender TEXT NOT NULL,
  hops INTEGER NOT NULL,
  FOREIGN KEY (topic_id) REFERENCES topics(id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

ALTER TABLE x_turns ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE x_turns ADD COLUMN cost REAL NOT NULL DEFAULT 0;
