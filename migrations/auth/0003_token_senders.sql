-- What: the sender names a token may use.
-- Why: `sender` of a message is free text; a token given to one agent can be limited to the names of
--   that agent. An older program would let it use any, so it must not open the file.
-- opens-with: 3

ALTER TABLE tokens ADD COLUMN senders TEXT;  -- JSON array of strings; NULL: any
