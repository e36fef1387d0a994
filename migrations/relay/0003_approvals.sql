-- What: who approved an agent, and the question to each admin about it.
-- Why: an approval may need several admins, and each of them counts once, whichever way it answers.
-- opens-with: 1

CREATE TABLE approvals (
  agent TEXT NOT NULL,
  admin TEXT NOT NULL,
  ask_id TEXT,                          -- of the question to this admin that waits
  approved_ms INTEGER,
  PRIMARY KEY (agent, admin)
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_asked ON approvals (ask_id) WHERE ask_id IS NOT NULL;
