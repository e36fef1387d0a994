-- What: where events are to be sent, and how far each receiver has been served.
-- Why: a registration has to outlive the process, and its cursor has to be in the file of the
--   events it counts. The secrets are readable here, for they sign: an HMAC can't be made with a
--   hash. They are as safe as the file, which only its owner may read (0600 in a 0700 folder).
--   Older programs pass an unknown x_ table by.
-- opens-with: 1

CREATE TABLE x_webhooks (
  id TEXT PRIMARY KEY NOT NULL,
  url TEXT NOT NULL,
  description TEXT NOT NULL,
  wanted_json TEXT NOT NULL,     -- {"names": […], "channels": [ids], "topics": [ids]}
  format TEXT NOT NULL CHECK (format IN ('native', 'cloudevents')),
  enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  cursor INTEGER NOT NULL,       -- event_id up to which it has been served
  secret TEXT NOT NULL,
  former_secret TEXT,            -- signs too, until former_until_ms
  former_until_ms INTEGER,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  CHECK (cursor >= 0)
) STRICT;
