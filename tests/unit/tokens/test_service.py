"""Issuing, revoking, rotating and expiring tokens, on a real file."""

import pytest

from appliance.kernel.auth import hash_token
from appliance.kernel.ids import TOKEN_PREFIX
from appliance.tokens import wire, writes
from appliance.workspace.datadir import DataDirNotWritable

# -- issuing -------------------------------------------------------------------------------


def test_secret_is_returned_once_and_never_stored(fixture):
    issued = fixture.create()
    assert issued.secret.startswith(TOKEN_PREFIX)
    assert fixture.opens(issued.secret)
    assert issued.secret not in repr(fixture.tokens.list_all())
    fixture.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert issued.secret.encode() not in fixture.datadir.database("auth").read_bytes()


def test_name_of_a_valid_token_is_taken_until_it_ends(fixture):
    first = fixture.create("ci")
    with pytest.raises(wire.TokenNameTaken) as caught:
        fixture.create("ci")
    assert caught.value.details == {"token_id": first.token.id}
    fixture.tokens.revoke(first.token.id)
    second = fixture.create("ci", days=1)
    fixture.clock.pass_seconds(86_401)
    assert fixture.state(second.token.id) == "expired"
    fixture.create("ci")


@pytest.mark.parametrize(
    ("scopes", "refused"),
    [
        (["hub:read"], False),
        (["hub:read", "hub:post@ch_1", "hub:post@ch_2"], False),
        (["admin"], False),
        (["metrics:read"], False),
        (["admin@ch_1"], True),
        (["metrics:read@ch_1"], True),
        (["hub:read@"], True),
        (["hub:read@a channel"], True),
        (["tokens:admin"], True),
        (["doctor:read"], True),
        (["doctor:repair"], True),
        (["hub:everything"], True),
    ],
)
def test_unknown_scope_is_refused(fixture, scopes, refused):
    if refused:
        with pytest.raises(wire.UnknownScope):
            fixture.create(scopes=scopes)
    else:
        assert sorted(fixture.create(scopes=scopes).token.scopes) == sorted(scopes)


# -- rotation --------------------------------------------------------------------------------


def test_both_secrets_are_valid_during_the_grace_period(fixture):
    issued = fixture.create()
    closed = []
    fixture.book.watch(fixture.book.find(issued.secret), lambda: closed.append("over"))
    new = fixture.rotate(issued.token.id, 10)
    assert (fixture.opens(issued.secret), fixture.opens(new), closed) == (True, True, [])
    assert fixture.book.find(new).id == fixture.book.find(issued.secret).id
    fixture.clock.pass_seconds(10)
    fixture.book.end(fixture.clock.now_ms())
    assert (fixture.opens(issued.secret), fixture.opens(new), closed) == (False, True, ["over"])


def test_zero_grace_ends_former_secrets_immediately(fixture):
    issued = fixture.create()
    second = fixture.rotate(issued.token.id, 1000)
    third = fixture.rotate(issued.token.id, 0)
    assert [fixture.opens(each) for each in (issued.secret, second, third)] == [False, False, True]
    assert fixture.tokens.list_all().tokens[-1].rotating_until is None


def test_rotated_server_token_is_in_its_file_after_a_restart(fixture):
    old = fixture.datadir.read_token()
    fixture.datadir.write_private(fixture.datadir.server_file, '{"port": 1, "auth_token": "x"}')
    new = fixture.rotate("server")
    assert fixture.datadir.read_token() == new
    assert fixture.datadir.read_server().auth_token == new
    assert fixture.datadir.token_file.stat().st_mode & 0o777 == 0o600
    fixture.start()
    assert fixture.opens(old)
    assert fixture.book.find(new).allows("tokens:admin")
    fixture.clock.pass_seconds(300)
    assert (fixture.opens(old), fixture.opens(new)) == (False, True)


def test_failed_write_of_the_token_file_keeps_the_old_token(fixture, monkeypatch):
    old = fixture.datadir.read_token()

    def refuse(*_):
        raise DataDirNotWritable

    monkeypatch.setattr(fixture.datadir, "write_private", refuse)
    with pytest.raises(DataDirNotWritable):
        fixture.rotate("server", 0)
    fixture.clock.pass_seconds(1000)
    assert fixture.opens(old)
    assert fixture.datadir.read_token() == old


def test_concurrent_rotation_of_the_server_token_is_refused(fixture, monkeypatch):
    write_private, refused = fixture.datadir.write_private, []

    def meanwhile(*arguments):
        with pytest.raises(wire.TokenRotationRunning) as caught:
            fixture.rotate("server")
        refused.append(caught)
        write_private(*arguments)

    monkeypatch.setattr(fixture.datadir, "write_private", meanwhile)
    new = fixture.rotate("server")
    assert (fixture.opens(new), fixture.datadir.read_token(), len(refused)) == (True, new, 1)


def test_interrupted_server_rotation_is_undone_at_the_next_start(fixture):
    old = fixture.datadir.read_token()
    fixture.file.write(writes.rotate, "server", hash_token("never seen"), 1000)
    fixture.start()
    assert (fixture.opens(old), fixture.opens("never seen")) == (True, False)
    fixture.clock.pass_seconds(1000)
    assert fixture.opens(old)


# -- upkeep ----------------------------------------------------------------------------------


def test_token_can_be_limited_to_sender_names(fixture):
    made = fixture.create("ci", senders=["tester", "builder", "tester"])
    assert made.token.senders == ["builder", "tester"]
    assert fixture.book.find(made.secret).senders == frozenset({"builder", "tester"})
    rotated = fixture.tokens.rotate(made.token.id, wire.RotateToken(60))
    for secret in (made.secret, rotated.secret):
        assert fixture.book.find(secret).senders == frozenset({"builder", "tester"})
    assert [token.senders for token in fixture.tokens.list_all().tokens if token.name == "ci"] == [
        ["builder", "tester"]
    ]
    assert fixture.book.find(fixture.create("any").secret).senders is None


@pytest.mark.parametrize("name", ["server", "owner", "anonymous", "plugin:urls", "appliance:x"])
def test_reserved_token_name_is_refused(fixture, name):
    with pytest.raises(wire.Invalid):
        fixture.create(name)
