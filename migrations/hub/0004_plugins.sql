-- What: how far each plugin has followed the event log, what it is to do again, and which rows
--   of enrichments are its.
-- Why: work cut off by a restart goes on where it stopped, so the cursor has to be in the file of
--   the events it counts. The table enrichments belongs to the hub specification and has no room
--   for who found something in which text, which is needed to replace it and to know it is old.
--   Older programs pass an unknown x_ table by.
-- opens-with: 1

CREATE TABLE x_plugin_cursors (
  plugin TEXT PRIMARY KEY NOT NULL,
  cursor INTEGER NOT NULL,       -- event_id up to which everything has been dealt with
  redo_cursor INTEGER,           -- the same for what was asked for again, while there is some
  redo_until INTEGER,
  updated_at TEXT NOT NULL,
  CHECK (cursor >= 0),
  CHECK ((redo_cursor IS NULL) = (redo_until IS NULL))
) STRICT;

CREATE TABLE x_enrichment_sets (
  message_id TEXT NOT NULL,
  plugin TEXT NOT NULL,
  version INTEGER NOT NULL,      -- of the message, when they were found
  content_hash BLOB NOT NULL,    -- SHA-256 of the text they were found in
  enrichment_ids TEXT NOT NULL,  -- a JSON list of ids in enrichments
  PRIMARY KEY (message_id, plugin),
  FOREIGN KEY (message_id) REFERENCES messages(id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
