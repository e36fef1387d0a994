-- What: who used an id first.
-- Why: two members that use the same id for the same text sent one message, and the second was told that it was delivered.
--   Rows from before have no sender; it is looked up in the history of their message while that is kept.
-- opens-with: 1

ALTER TABLE client_message_dedupe ADD COLUMN sender_pubkey TEXT;
