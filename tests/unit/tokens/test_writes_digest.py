"""The digest of the tokens follows every change by this program, and no other."""

import pytest

from appliance.tokens import writes
from appliance.workspace import row_digest


def find_changes(fixture) -> list[str]:
    return row_digest.find_changes(fixture.connection, "auth")


def test_changes_by_this_program_keep_the_digest(fixture) -> None:
    first, second = fixture.create("first").token.id, fixture.create("second", days=1).token.id
    fixture.rotate(first, 60)
    fixture.tokens.revoke(first)
    fixture.rotate("server")
    fixture.datadir.token_file.write_text("another-token-of-the-workspace\n")
    fixture.start()
    fixture.file.write(writes.record_use, [second], fixture.clock.now_ms())
    fixture.file.write(writes.purge, fixture.clock.now_ms() + 2 * 86_400_000)
    assert find_changes(fixture) == []


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("UPDATE tokens SET scopes = '[\"admin\"]' WHERE name = 'bot'", "tokens"),
        ("DELETE FROM tokens", "tokens"),
        ("INSERT INTO retired SELECT 'forged', id, 9e15 FROM tokens LIMIT 1", "retired"),
    ],
)
def test_changes_by_sql_stay_known(fixture, sql: str, table: str) -> None:
    fixture.create("bot")
    fixture.connection.execute(sql)
    assert find_changes(fixture) == [table]
    fixture.create("later")
    fixture.start()
    assert find_changes(fixture) == [table], "a change by this program does not accept them"
