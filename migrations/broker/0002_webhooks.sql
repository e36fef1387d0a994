-- What: a webhook's secret and switch, since when nothing reached it; why a delivery did not succeed.
-- Why: deliveries to webhooks are signed, and a receiver that is gone is not called for ever. Nothing delivered to webhooks
--   before, and none could be added, so no row is without a secret.
-- opens-with: 1

ALTER TABLE webhook ADD COLUMN secret TEXT NOT NULL DEFAULT '';
ALTER TABLE webhook ADD COLUMN former_secret TEXT;
ALTER TABLE webhook ADD COLUMN former_until_ms INTEGER;
ALTER TABLE webhook ADD COLUMN enabled INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1));
ALTER TABLE webhook ADD COLUMN failing_since_ms INTEGER;
ALTER TABLE webhook ADD COLUMN disabled_because TEXT;
ALTER TABLE delivery_queue ADD COLUMN last_error TEXT;
