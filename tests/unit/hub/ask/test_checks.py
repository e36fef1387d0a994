"""The rows of the table of checks for asks."""

from appliance.hub.ask.checks import LATE_MS
from appliance.kernel.clock import SystemClock

ASK = (
    "INSERT INTO x_asks (id, message_id, channel_id, state, asker, principal_id, fingerprint, text,"
    " choices_json, may_answer_json, blocks_json, mail_to_json, mailed, created_at, due_steady_ms,"
    " settled_at) VALUES (?1, ?1, 'ch_1', ?2, 'ci', 'tok_1', '', 'Deploy?', '[]', '[]', '[]', '[]',"
    " 1, '2026-01-01T00:00:00.000Z', ?3, ?4)"
)


def test_overdue_ask_is_found_and_others_are_not(workspace):
    now_ms = SystemClock().now_ms()  # the steady clock of a store that was never served
    workspace.execute(ASK, "ask_late", "waiting", now_ms - LATE_MS - 1000, None)
    workspace.execute(ASK, "ask_due", "waiting", now_ms - LATE_MS // 2, None)
    workspace.execute(ASK, "ask_open", "waiting", None, None)
    workspace.execute(ASK, "ask_expired", "expired", 1, "2026-01-01T00:00:00.000Z")
    problems = [(each.problem, each.subject) for each in workspace.find("ask.deadlines")]
    assert problems == [("overdue", "ask ask_late")]
