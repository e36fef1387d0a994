-- What: by how much the clock had been set in all when a message was accepted.
-- Why: ages must not change when the machine's clock is set. From now on a message's created_ms and an id's expires_ms are
--   times of a clock that is never set: the wall clock minus the sum of its jumps (`total_ms` of the note `clock` in meta).
--   Moving every row with each jump would take minutes in a large file. created_ms + skew_ms is the time that is shown.
--   Rows from before have no jump to take into account.
-- opens-with: 1

ALTER TABLE topic_message ADD COLUMN skew_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE message_queue ADD COLUMN skew_ms INTEGER NOT NULL DEFAULT 0;
