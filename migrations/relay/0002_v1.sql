-- What: messages of version 1 of the protocol, which rest on the relay until their recipients read them.
-- Why: agents that have not moved to version 2 yet, for 30 days after `v1` of `relay.options` was first set.
-- opens-with: 1

CREATE TABLE v1_messages (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  recipient TEXT NOT NULL,
  sender TEXT NOT NULL,
  message_id TEXT NOT NULL,
  nonce TEXT NOT NULL,
  body TEXT,                            -- JSON as it was sent; empty once it is acked
  at_ms INTEGER NOT NULL,
  UNIQUE (sender, nonce)
) STRICT;
CREATE INDEX v1_messages_recipient ON v1_messages (recipient, number) WHERE body IS NOT NULL;
