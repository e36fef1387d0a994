-- What this program adds to a bus, also to one that another program has made.
CREATE TABLE IF NOT EXISTS workers (
    task_id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    branch TEXT,
    worktree TEXT,
    description TEXT,
    created_at_ms INTEGER NOT NULL,
    state_changed_at_ms INTEGER NOT NULL
);

-- Which bus this is: lines of the export have the id. Fences of new tasks are above `fence`.
CREATE TABLE IF NOT EXISTS x_bus (id TEXT NOT NULL, fence INTEGER NOT NULL);
INSERT INTO x_bus
SELECT lower(hex(randomblob(8))), 0
WHERE NOT EXISTS (SELECT 1 FROM x_bus);
INSERT INTO sqlite_sequence (name, seq)
SELECT 'messages', 0
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'messages');

-- The fencing token of a claim. It outlives the claim's row, and only rises.
CREATE TABLE IF NOT EXISTS x_fences (
    task_id TEXT PRIMARY KEY,
    fence INTEGER NOT NULL
);
INSERT INTO x_fences
SELECT task_id, 1 FROM task_claims
WHERE task_id NOT IN (SELECT task_id FROM x_fences);

-- The key of the request that made a claim, so that its repetition gets the same claim.
CREATE TABLE IF NOT EXISTS x_claim_keys (
    task_id TEXT PRIMARY KEY,
    fence INTEGER NOT NULL,
    key TEXT NOT NULL
);

-- Programs of others raise the number too. Not an upsert: the conflict clause of their
-- INSERT OR REPLACE would replace the one in here.
DROP TRIGGER IF EXISTS x_task_claims_raise_fence;
CREATE TRIGGER x_task_claims_raise_fence AFTER INSERT ON task_claims BEGIN
    INSERT INTO x_fences
    SELECT new.task_id, (SELECT fence FROM x_bus)
    WHERE NOT EXISTS (SELECT 1 FROM x_fences WHERE task_id = new.task_id);
    UPDATE x_fences SET fence = fence + 1 WHERE task_id = new.task_id;
END;

CREATE TABLE IF NOT EXISTS x_dependencies (
    task_id TEXT NOT NULL,
    needs TEXT NOT NULL,
    PRIMARY KEY (task_id, needs)
);

-- A cursor that no longer holds back pruning. It counts again after the next ack.
CREATE TABLE IF NOT EXISTS x_retired_cursors (
    agent_id TEXT PRIMARY KEY,
    last_acked_seq INTEGER NOT NULL,
    retired_at_ms INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS x_reviews (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL,
    decision TEXT NOT NULL, -- pending, approved, rejected
    reviewer TEXT,
    comment TEXT,
    head TEXT, -- the commit under review
    requested_at_ms INTEGER NOT NULL,
    decided_at_ms INTEGER,
    stops INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS x_reviews_task ON x_reviews(task_id, id);

CREATE TABLE IF NOT EXISTS x_operations (
    task_id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    step TEXT NOT NULL,
    facts TEXT NOT NULL,
    started_at_ms INTEGER NOT NULL
);

-- The header `traceparent` of the request that published a message.
CREATE TABLE IF NOT EXISTS x_traces (
    seq INTEGER PRIMARY KEY,
    traceparent TEXT NOT NULL
);
-- An id that only this file has, also if its rows are copied into a new one.
INSERT OR IGNORE INTO meta (key, value) SELECT 'x_store_id', id FROM x_bus;
-- How many messages were deleted, without those that this program has pruned.
INSERT OR IGNORE INTO meta (key, value) VALUES ('x_deleted', '0');
CREATE TRIGGER IF NOT EXISTS x_messages_count_deleted AFTER DELETE ON messages BEGIN
    UPDATE meta SET value = value + 1 WHERE key = 'x_deleted';
END;
CREATE TRIGGER IF NOT EXISTS x_messages_drop_trace AFTER DELETE ON messages BEGIN
    DELETE FROM x_traces WHERE seq = old.seq;
END;
