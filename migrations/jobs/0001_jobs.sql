-- What: jobs made over the API, the moment from which each schedule continues, runs, each attempt of a run, and a log of the
--   ends of attempts.
-- Why: an accepted run must survive the process, and an attempt is never overwritten by the next one. `due_steady_ms` and
--   `lease_until_steady_ms` are times of a clock that is never set, so a jump of the wall clock starts nothing.
-- opens-with: 1
--
-- The log has every attempt, also of runs that were deleted since. It is exported as segments, and its rows are deleted with
-- the runs of their time. `event_id` is never used again, not even after a restore. Output and specs are not in it.

CREATE TABLE meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE jobs (
  name TEXT PRIMARY KEY NOT NULL,
  spec TEXT,                     -- JSON; NULL: the job is a file
  paused_at TEXT,
  cron_from_ms INTEGER NOT NULL, -- by the wall clock; earlier times were handled
  interval_from_steady_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE runs (
  id TEXT PRIMARY KEY NOT NULL,
  job TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('queued', 'waiting', 'running', 'succeeded', 'failed', 'cancelled', 'lost')),
  cause TEXT NOT NULL,           -- request, schedule, event or after
  detail TEXT,                   -- the due time, the event, or the run before
  principal TEXT,                -- who asked for it
  spec TEXT NOT NULL,            -- JSON, as it was when the run was created
  concurrency_key TEXT NOT NULL,
  created_at TEXT NOT NULL,
  due_steady_ms INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  cancel_requested INTEGER NOT NULL DEFAULT 0,
  ask_id TEXT,                   -- of the question that it waits for
  ended_at TEXT,
  exit_code INTEGER,
  error TEXT,
  posted INTEGER NOT NULL DEFAULT 1 -- 0: its outcome has to be posted to a topic
) STRICT;

CREATE INDEX runs_unposted ON runs (id) WHERE posted = 0;
CREATE INDEX runs_open ON runs (concurrency_key, state) WHERE state IN ('queued', 'waiting', 'running');
CREATE INDEX runs_waiting ON runs (id) WHERE state = 'waiting';
CREATE INDEX runs_due ON runs (due_steady_ms) WHERE state = 'queued';
CREATE INDEX runs_job ON runs (job, id);
CREATE INDEX runs_event ON runs (job, due_steady_ms) WHERE cause = 'event';

CREATE TABLE attempts (
  run_id TEXT NOT NULL,
  number INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running', 'succeeded', 'failed', 'cancelled', 'lost')),
  runner TEXT NOT NULL,          -- instance id of the appliance
  lease_until_steady_ms INTEGER NOT NULL,
  handle TEXT,                   -- of the executor, such as a process
  limits TEXT,                   -- how its limits are enforced
  started_at TEXT NOT NULL,
  ended_at TEXT,
  exit_code INTEGER,
  error TEXT,
  output_bytes INTEGER,
  tail TEXT,                     -- the end of its output
  artefacts TEXT,                -- JSON: name, bytes and SHA-256 of each file
  PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX attempts_running ON attempts (run_id) WHERE state = 'running';

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
