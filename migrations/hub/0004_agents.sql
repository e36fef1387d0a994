-- What: the programs that wake agents: what each said last, whether an operator paused it, and its last turns.
-- Why: a sender sees whether a recipient sleeps, works or is gone; an operator stops an agent and reads what it did, from
--   anywhere. A turn is a process that the appliance does not run itself, so its report is the only trace.
-- opens-with: 1

-- `run_id`: the program that reported last; an older one of that name ends itself. `paused_until_steady_ms`: a time of the
-- steady clock; NULL in a pause without an end.

CREATE TABLE x_agents (
  name TEXT PRIMARY KEY NOT NULL,
  run_id TEXT,
  state TEXT NOT NULL CHECK (state IN ('asleep', 'working', 'waiting', 'stopped')),
  state_since TEXT NOT NULL,
  reported_at TEXT,
  paused_by TEXT,
  paused_at TEXT,
  paused_because TEXT,
  paused_until_steady_ms INTEGER,
  CHECK (length(name) > 0),
  CHECK ((paused_by IS NULL) = (paused_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE x_turns (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  key TEXT NOT NULL UNIQUE,      -- its program's id and number: a repeated report is stored once
  began_at TEXT NOT NULL,
  seconds REAL NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome IN ('done', 'failed', 'late', 'stopped')),
  code INTEGER NOT NULL,
  entries_json TEXT NOT NULL,    -- [ids] that it was given
  open_json TEXT NOT NULL,       -- [ids] that it left unsettled
  output TEXT NOT NULL           -- the end of what it printed
) STRICT;

CREATE INDEX x_turns_name ON x_turns (name, id);
