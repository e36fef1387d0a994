-- What: the full-text index over messages, and the triggers that keep it in step.
-- Why: search in milliseconds. It is derived: whatever was there under this name is rebuilt.
--   The index stores no text of its own (external content), so a row is taken out of it by
--   the 'delete' command with the *old* text; the specification prints a plain UPDATE and
--   DELETE, which by then read the new text, and leave old words behind for ever.
--   The index knows messages by rowid; VACUUM may renumber those, so rebuild after it:
--   INSERT INTO messages_fts(messages_fts) VALUES ('rebuild')
-- opens-with: 1
-- optional: yes

DROP TRIGGER IF EXISTS messages_fts_insert;
DROP TRIGGER IF EXISTS messages_fts_update;
DROP TRIGGER IF EXISTS messages_fts_delete;
DROP TABLE IF EXISTS messages_fts;

CREATE VIRTUAL TABLE messages_fts USING fts5(
  content_raw,
  content=messages,
  content_rowid=rowid
);

CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages
BEGIN
  INSERT INTO messages_fts(rowid, content_raw) VALUES (new.rowid, new.content_raw);
END;

CREATE TRIGGER messages_fts_update AFTER UPDATE OF content_raw ON messages
WHEN old.content_raw IS NOT new.content_raw
BEGIN
  INSERT INTO messages_fts(messages_fts, rowid, content_raw)
  VALUES ('delete', old.rowid, old.content_raw);
  INSERT INTO messages_fts(rowid, content_raw) VALUES (new.rowid, new.content_raw);
END;

CREATE TRIGGER messages_fts_delete AFTER DELETE ON messages
BEGIN
  INSERT INTO messages_fts(messages_fts, rowid, content_raw)
  VALUES ('delete', old.rowid, old.content_raw);
END;

INSERT INTO messages_fts(messages_fts) VALUES ('rebuild');
