-- The tables of the audit log. `log` is a chain: each row has the hash of the row before it.
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS log (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  act TEXT NOT NULL,
  phase TEXT NOT NULL,
  began INTEGER,
  actor TEXT NOT NULL,
  via TEXT NOT NULL,
  detail TEXT NOT NULL,
  previous TEXT NOT NULL,
  hash TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS log_began ON log (began) WHERE began IS NOT NULL;
INSERT OR IGNORE INTO meta VALUES ('x_store_id', lower(hex(randomblob(16))));
INSERT OR IGNORE INTO meta VALUES ('schema_version', '1');
COMMIT;
