-- What: meshes whose broker has revoked this appliance's member key.
-- Why: sends to such a mesh are refused at once, also after a restart, until the broker accepts a key again.
-- opens-with: 1

CREATE TABLE revoked (
  mesh TEXT PRIMARY KEY NOT NULL,
  pubkey TEXT NOT NULL,
  since_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
