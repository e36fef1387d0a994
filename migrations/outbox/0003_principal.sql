-- What: the principal (token, or part of the appliance) that asked for each send.
-- Why: who is responsible for a send must be told with it. Older programs pass the column by.
-- opens-with: 1

ALTER TABLE outbox ADD COLUMN principal TEXT;  -- NULL: accepted before this column was there
