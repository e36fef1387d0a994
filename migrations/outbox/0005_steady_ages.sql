-- What: when a send was accepted, as a time of the steady clock.
-- Why: waits and ages must not change when the machine's clock is set. `next_attempt_at` and `accepted_steady_ms` are times of
--   a clock that is never set (the note `clock` in meta), so rows need not be moved with each jump. `enqueued_at` is what the
--   wall clock showed. Only pending sends have an age that counts.
-- opens-with: 5

ALTER TABLE outbox ADD COLUMN accepted_steady_ms INTEGER NOT NULL DEFAULT 0;

UPDATE outbox SET
  accepted_steady_ms = enqueued_at - coalesce((SELECT value ->> 'total_ms' FROM meta WHERE key = 'clock'), 0),
  next_attempt_at = next_attempt_at - coalesce((SELECT value ->> 'total_ms' FROM meta WHERE key = 'clock'), 0)
WHERE status IN ('pending', 'inflight');
