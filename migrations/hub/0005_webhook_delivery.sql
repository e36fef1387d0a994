-- What: what the sending of webhooks has to remember beside the cursor.
-- Why: ids of deliveries carry the generation, so that events which are replayed get new ones; since
--   when a receiver fails has to outlive a restart, or a dead one would never be given up; and an
--   operator asks why a webhook is off. Older programs pass these columns by.
-- opens-with: 1

ALTER TABLE x_webhooks ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE x_webhooks ADD COLUMN failing_since_ms INTEGER;
ALTER TABLE x_webhooks ADD COLUMN disabled_because TEXT;
