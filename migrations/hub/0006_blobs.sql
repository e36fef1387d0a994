-- What: files that agents put aside, by the hash of their content, and who put each one.
-- Why: a message names a large text as `sha256:HEX` instead of repeating it. The content is a file in the worker bus's folder
--   of payloads; the row says how long it stays. Other programs pass by these tables.
-- opens-with: 1

-- `kept_steady_ms`: when the file was put last, or when a store was last seen to name it, by the steady clock (the note `clock` in
-- meta); 0: a deleted message named it. A file that nothing names is removed some time after. `removed_ms`: when it was removed for
-- readers, by the wall clock, as the file's own time; its content goes as soon as no backup reads.

CREATE TABLE x_blobs (
  hash TEXT PRIMARY KEY NOT NULL CHECK (length(hash) = 64),
  size INTEGER NOT NULL CHECK (size >= 0),
  media_type TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  kept_steady_ms INTEGER NOT NULL,
  removed_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX x_blobs_kept ON x_blobs (kept_steady_ms) WHERE removed_ms IS NULL;
CREATE INDEX x_blobs_removed ON x_blobs (removed_ms) WHERE removed_ms IS NOT NULL;

-- Each principal that puts a file is charged for it, and may read it.

CREATE TABLE x_blob_puts (
  principal TEXT NOT NULL,
  hash TEXT NOT NULL,
  size INTEGER NOT NULL,
  put_ms INTEGER NOT NULL,
  PRIMARY KEY (principal, hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX x_blob_puts_hash ON x_blob_puts (hash, principal);
