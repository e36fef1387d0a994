-- What: the principal (token or plugin) that created each message.
-- Why: `sender` is what the caller says; who it was must stand beside it, written in the same
--   transaction. The table messages belongs to the hub specification and keeps its columns. Events
--   carry theirs in data_json. Messages without a row are older, or of another program.
--   Older programs pass an unknown x_ table by.
-- opens-with: 1

CREATE TABLE x_message_principals (
  message_id TEXT PRIMARY KEY NOT NULL,
  principal TEXT NOT NULL
) STRICT, WITHOUT ROWID;
