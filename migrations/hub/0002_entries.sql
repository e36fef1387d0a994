-- What: addressed messages: an inbox for each name, its entries, and the topics that a name follows.
-- Why: a sender has to tell a lost message from one that waits or one that nobody takes. So each recipient of a message
--   has a row beside it, written in the message's transaction, with everything that happened to it. Other programs pass by
--   these tables; to them an addressed message is a message.
-- opens-with: 1

-- A name is a sender's name. `opened_at`: when somebody first used the inbox; NULL while it was only written to. `newest`:
-- the position of its newest entry. `acknowledged_id`: the entry that was acknowledged last.

CREATE TABLE x_inboxes (
  name TEXT PRIMARY KEY NOT NULL,
  created_at TEXT NOT NULL,
  opened_at TEXT,
  seen_at TEXT,
  newest INTEGER NOT NULL,
  acknowledged_id INTEGER,
  acknowledged_at TEXT,
  waking TEXT,                   -- what the program that wakes the agent said last
  waking_at TEXT,
  CHECK (length(name) > 0),
  CHECK (newest >= 0)
) STRICT, WITHOUT ROWID;

-- `position`: the place in its inbox; a reminder moves an entry to the end. `due_steady_ms`: a time of the steady clock (the
-- note `clock` in meta); NULL without a deadline, and after the last reminder.

CREATE TABLE x_entries (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  position INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  channel_id TEXT NOT NULL,
  reason TEXT NOT NULL CHECK (reason IN ('to', 'mention', 'follow', 'reassigned')),
  state TEXT NOT NULL CHECK (state IN ('stored', 'listed', 'acknowledged', 'declined')),
  stored_at TEXT NOT NULL,
  listed_at TEXT,
  settled_at TEXT,
  settled_principal TEXT,
  declined_because TEXT,
  ack_seconds INTEGER,           -- how long it may stay unacknowledged
  due_steady_ms INTEGER,
  on_overdue TEXT,               -- `remind`, or `reassign:NAME`; NULL: nothing
  overdue_at TEXT,
  reminders INTEGER NOT NULL DEFAULT 0,
  UNIQUE (message_id, name),
  CHECK ((state IN ('acknowledged', 'declined')) = (settled_at IS NOT NULL)),
  CHECK ((state = 'declined') = (declined_because IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX x_entries_position ON x_entries (name, position);
CREATE INDEX x_entries_open ON x_entries (name, position) WHERE settled_at IS NULL;
CREATE INDEX x_entries_due ON x_entries (due_steady_ms) WHERE due_steady_ms IS NOT NULL;
CREATE INDEX x_entries_overdue ON x_entries (id) WHERE overdue_at IS NOT NULL AND settled_at IS NULL;

CREATE TABLE x_follows (
  topic_id TEXT NOT NULL,
  name TEXT NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (topic_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX x_follows_name ON x_follows (name, topic_id);
