"""Statements that change the outbox, and the indexes they use."""

import sqlite3

from tests.support.outbox import OutboxFixture


def test_claims_use_their_indexes(outbox: OutboxFixture):
    """A claim may not read what was delivered long ago."""
    with sqlite3.connect(outbox.path) as connection:
        for sql in (
            "SELECT id FROM outbox WHERE status = 'pending' AND route = 'r'"
            " AND next_attempt_at <= 1 AND accepted_steady_ms > 0"
            " ORDER BY next_attempt_at, rowid LIMIT 9",
            "SELECT id FROM outbox WHERE status IN ('pending', 'inflight') AND route = 'r'"
            " AND (destination_kind, destination_ref) > ('a', 'b')"
            " ORDER BY destination_kind, destination_ref, rowid LIMIT 1",
            "SELECT route FROM outbox WHERE status = 'pending' AND route > 'a'"
            " ORDER BY route, next_attempt_at LIMIT 1",
            "SELECT id FROM outbox WHERE status = 'pending' AND id < 'out_0'"
            " AND accepted_steady_ms <= 5 AND mesh = 'm' ORDER BY id LIMIT 10",
            "SELECT id FROM outbox WHERE status = 'inflight' AND id NOT IN"
            " (SELECT value FROM json_each('[]'))",
            "SELECT id FROM outbox WHERE status = 'dead' ORDER BY id DESC LIMIT 10",
        ):
            plan = " ".join(row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + sql))
            assert "USING" in plan, plan
            assert "INDEX outbox_" in plan, plan
            assert "TEMP B-TREE" not in plan, plan
    connection.close()
