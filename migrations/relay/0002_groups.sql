-- What: groups with their members and invitations, and each group's log, whose rows the relay signs.
-- Why: messages to a group go from each sender to each member, encrypted for that member. So the relay only has to know who is
--   in a group, and members have to notice a relay that changes its mind about that.
-- opens-with: 1

CREATE TABLE groups (
  id TEXT PRIMARY KEY NOT NULL,
  name TEXT NOT NULL,
  owner TEXT NOT NULL,
  members_can_invite INTEGER NOT NULL,
  members_can_send INTEGER NOT NULL,    -- the relay sees no messages: senders and recipients check this
  max_members INTEGER NOT NULL CHECK (max_members BETWEEN 1 AND 50),
  created_ms INTEGER NOT NULL,
  dissolved_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX groups_dissolved ON groups (dissolved_ms) WHERE dissolved_ms IS NOT NULL;

CREATE TABLE group_members (
  group_id TEXT NOT NULL,
  agent TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
  status TEXT NOT NULL CHECK (status IN ('pending', 'active', 'left', 'removed')),
  invited_by TEXT,
  greeting TEXT,
  invited_ms INTEGER NOT NULL,
  joined_ms INTEGER,
  left_ms INTEGER,
  PRIMARY KEY (group_id, agent)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_members_agent ON group_members (agent, status);

-- `at_ms` rises within a group, so it is a cursor. `hash` covers the row and the hash before it.
CREATE TABLE group_changes (
  group_id TEXT NOT NULL,
  number INTEGER NOT NULL,
  agent TEXT NOT NULL,
  action TEXT NOT NULL CHECK (action IN ('invited', 'joined', 'declined', 'left', 'removed', 'ownership-transferred',
    'dissolved')),
  by_agent TEXT NOT NULL,
  at_ms INTEGER NOT NULL,
  previous TEXT NOT NULL,               -- the hash of the row before; empty in the first one
  hash TEXT NOT NULL,
  signature TEXT NOT NULL,              -- by the relay's own key
  PRIMARY KEY (group_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_changes_at ON group_changes (group_id, at_ms);
