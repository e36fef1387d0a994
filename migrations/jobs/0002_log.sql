-- What: a log of the ends of attempts.
-- Why: reports need every attempt, also of runs that were deleted since. The log is exported as segments. Its rows are
--   deleted with the runs of their time. `event_id` is never used again, not even after a restore: a restore to a file
--   from before this table leaves the first number in meta. Output and specs are not in it.
-- opens-with: 1

CREATE TABLE log (
  event_id INTEGER PRIMARY KEY AUTOINCREMENT,
  ts TEXT NOT NULL,
  name TEXT NOT NULL,          -- attempt.succeeded, .failed, .cancelled, .lost
  run_id TEXT NOT NULL,
  job TEXT NOT NULL,
  attempt INTEGER NOT NULL,    -- from 1
  cause TEXT NOT NULL,         -- of the run
  run_state TEXT NOT NULL,     -- after the attempt; queued: it is repeated
  accepted_at TEXT NOT NULL,   -- when the run was created
  delivered_at TEXT NOT NULL,  -- when the attempt started
  exit_code INTEGER,
  error TEXT
) STRICT;

INSERT INTO sqlite_sequence (name, seq)
SELECT 'log', CAST(value AS INTEGER) FROM meta WHERE key = 'sequence:log';
