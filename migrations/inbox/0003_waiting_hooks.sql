-- What: the command of a hook run in the settings, by its position, and an index of the runs that wait.
-- Why: runs are stored with their message, so that a killed appliance runs them after its start.
-- opens-with: 1

ALTER TABLE hook_runs ADD COLUMN command INTEGER;
CREATE INDEX hook_runs_waiting ON hook_runs (number) WHERE outcome = 'waiting';
