-- What: the full-text index over messages, how far it reaches, and what keeps it in step.
-- Why: search in milliseconds. It is derived: whatever was there under this name is rebuilt.
--   The index stores no text of its own (external content), so a row is taken out of it by
--   the 'delete' command with the *old* text; the specification prints a plain UPDATE and
--   DELETE, which by then read the new text, and leave old words behind for ever.
--   New messages are not indexed by a trigger: that would double the cost of a send. They are
--   taken in by the hub, many in one statement, up to the rowid in x_fts; what lies above it
--   is not in the index yet, and the triggers let it be.
--   The index knows messages by rowid; VACUUM may renumber those. To have all made anew at the
--   next start: DROP TABLE x_fts. ('rebuild' alone also takes in what lies above x_fts.indexed,
--   and the hub would then take it in a second time.)
--   messages_fts makes one token of a whole run of Chinese, Japanese or Korean characters, so
--   words inside it are not found. For those there is x_cjk_messages, an index of pairs of
--   neighbours; messages without such characters are not in it. It stores no text either. SQL can't
--   make pairs: the hub fills it, and takes a changed message out with its old text, which the
--   trigger keeps until then. After a rebuild it begins anew and is filled piece by piece.
-- opens-with: 1
-- optional: yes

DROP TRIGGER IF EXISTS messages_fts_insert;
DROP TRIGGER IF EXISTS messages_fts_update;
DROP TRIGGER IF EXISTS messages_fts_delete;
DROP TABLE IF EXISTS messages_fts;
DROP TABLE IF EXISTS x_fts;
DROP TRIGGER IF EXISTS x_cjk_update;
DROP TABLE IF EXISTS x_cjk_messages;
DROP TABLE IF EXISTS x_cjk_changed;
DROP TABLE IF EXISTS x_cjk;

CREATE TABLE x_fts (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  indexed INTEGER NOT NULL  -- every message up to this rowid is in the index, none above
) STRICT;

CREATE VIRTUAL TABLE messages_fts USING fts5(
  content_raw,
  content=messages,
  content_rowid=rowid
);

CREATE TRIGGER messages_fts_update AFTER UPDATE OF content_raw ON messages
WHEN old.content_raw IS NOT new.content_raw AND old.rowid <= (SELECT indexed FROM x_fts)
BEGIN
  INSERT INTO messages_fts(messages_fts, rowid, content_raw)
  VALUES ('delete', old.rowid, old.content_raw);
  INSERT INTO messages_fts(rowid, content_raw) VALUES (new.rowid, new.content_raw);
END;

CREATE TRIGGER messages_fts_delete AFTER DELETE ON messages
WHEN old.rowid <= (SELECT indexed FROM x_fts)
BEGIN
  INSERT INTO messages_fts(messages_fts, rowid, content_raw)
  VALUES ('delete', old.rowid, old.content_raw);
END;

INSERT INTO messages_fts(messages_fts) VALUES ('rebuild');
INSERT INTO x_fts (one, indexed) VALUES (1, (SELECT coalesce(max(rowid), 0) FROM messages));

CREATE TABLE x_cjk (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  indexed INTEGER NOT NULL  -- every message up to this rowid is in the index, none above
) STRICT;

CREATE TABLE x_cjk_changed (
  message INTEGER PRIMARY KEY,  -- its rowid
  old_content TEXT NOT NULL     -- what the index holds of it
) STRICT;

CREATE VIRTUAL TABLE x_cjk_messages USING fts5(pairs, content='', columnsize=0);

-- Only texts beyond ASCII can be in the index.
CREATE TRIGGER x_cjk_update AFTER UPDATE OF content_raw ON messages
WHEN old.content_raw IS NOT new.content_raw AND old.rowid <= (SELECT indexed FROM x_cjk)
  AND (length(old.content_raw) <> length(CAST(old.content_raw AS BLOB))
    OR length(new.content_raw) <> length(CAST(new.content_raw AS BLOB)))
BEGIN
  INSERT OR IGNORE INTO x_cjk_changed (message, old_content) VALUES (old.rowid, old.content_raw);
END;

INSERT INTO x_cjk (one, indexed) VALUES (1, 0);
