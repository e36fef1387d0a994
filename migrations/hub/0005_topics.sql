-- What: whether a topic is resolved, its handoff note, and pinned messages.
-- Why: whoever joins a topic late reads one note instead of its last 500 messages. A note says up to which event it holds, and
--   has a version, so that two writers don't replace each other's unseen. Other programs pass by these tables; to them a
--   resolved topic is a topic, and a pinned message is a message.
-- opens-with: 1

-- `note`, `changed_by`, `changed_at`: of the last time that the topic was resolved or reopened; NULL before the first one.

CREATE TABLE x_topic_states (
  topic_id TEXT PRIMARY KEY NOT NULL,
  resolved INTEGER NOT NULL DEFAULT 0 CHECK (resolved IN (0, 1)),
  note TEXT,
  changed_by TEXT,
  changed_at TEXT,
  handoff TEXT,
  handoff_by TEXT,
  handoff_at TEXT,
  handoff_event INTEGER,         -- the event_id up to which the note covers the topic
  handoff_version INTEGER NOT NULL DEFAULT 0,
  FOREIGN KEY (topic_id) REFERENCES topics(id) ON DELETE CASCADE,
  CHECK ((handoff IS NULL) = (handoff_version = 0)),
  CHECK (resolved = 0 OR note IS NOT NULL)
) STRICT, WITHOUT ROWID;

-- Messages never leave their channel.

CREATE TABLE x_pins (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  message_id TEXT NOT NULL UNIQUE,
  channel_id TEXT NOT NULL,
  pinned_by TEXT NOT NULL,
  pinned_at TEXT NOT NULL,
  FOREIGN KEY (message_id) REFERENCES messages(id) ON DELETE CASCADE
) STRICT;

CREATE INDEX x_pins_channel ON x_pins (channel_id, number);
