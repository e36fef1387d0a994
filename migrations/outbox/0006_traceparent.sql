-- opens-with: 5
--
-- The header `traceparent` (W3C Trace Context) of the request that made a send.

ALTER TABLE outbox ADD COLUMN traceparent TEXT;  -- NULL: it had none
