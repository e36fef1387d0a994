"""The columns of stored sends."""

from appliance.outbox.columns import SendRow


def test_row_columns_match_the_table(outbox):
    columns = [row[1] for row in outbox.rows("PRAGMA table_info(outbox)")]
    assert set(columns) == set(SendRow._fields)
