-- What: questions that wait for a person, each beside the message that asks it.
-- Why: an answer must be stored exactly once, in the transaction of the message that shows it. The
--   message is the spec's and can be edited or moved; what a person is asked must not change, so
--   the text is here too. `due_steady_ms` is a time of the steady clock (the note `clock` in meta).
--   Older programs pass an unknown x_ table by.
-- opens-with: 1

CREATE TABLE x_asks (
  id TEXT PRIMARY KEY NOT NULL,
  message_id TEXT NOT NULL UNIQUE,       -- the question in `messages`
  channel_id TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'answered', 'defaulted', 'expired', 'cancelled')),
  asker TEXT NOT NULL,                   -- the sender of the question
  principal TEXT,                        -- who created it, as in x_message_principals
  principal_id TEXT NOT NULL,
  key TEXT,                              -- the same key of the same principal is the same ask
  fingerprint TEXT NOT NULL,             -- of the request with that key
  text TEXT NOT NULL,
  choices_json TEXT NOT NULL,            -- [texts]; empty: free text
  default_answer TEXT,                   -- the answer at the deadline
  may_answer_json TEXT NOT NULL,         -- [names of tokens]; empty: all with the scope
  blocks_json TEXT NOT NULL,             -- [what waits for the answer]
  mail_to_json TEXT NOT NULL,            -- [addresses] that get a link to answer by
  mailed INTEGER NOT NULL CHECK (mailed IN (0, 1)),  -- whether the outbox has these mails
  created_at TEXT NOT NULL,
  due_steady_ms INTEGER,                 -- the deadline
  answer TEXT,
  settled_by TEXT,                       -- the sender of the reply
  settled_principal TEXT,
  settled_via TEXT CHECK (settled_via IN ('api', 'mail', 'webhook', 'deadline')),
  settled_at TEXT,
  reply_id TEXT,                         -- the reply in `messages`
  CHECK ((state = 'waiting') = (settled_at IS NULL))
) STRICT;

CREATE INDEX x_asks_state ON x_asks (state, id);
CREATE UNIQUE INDEX x_asks_key ON x_asks (principal_id, key) WHERE key IS NOT NULL;
CREATE INDEX x_asks_open ON x_asks (principal_id) WHERE state = 'waiting';
CREATE INDEX x_asks_due ON x_asks (due_steady_ms) WHERE state = 'waiting';
CREATE INDEX x_asks_unmailed ON x_asks (id) WHERE mailed = 0;
