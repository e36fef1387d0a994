-- What: notes.
-- Why: the smallest subsystem needs one table.
-- opens-with: 1

CREATE TABLE meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE note (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  text TEXT NOT NULL,
  at_ms INTEGER NOT NULL
) STRICT;
