"""Issuing, revoking, rotating and expiring, on a real file and with a clock that waits."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from appliance.kernel.auth import ANONYMOUS, TokenBook, hash_token, principal_of
from appliance.kernel.batch import BatchRunner
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import DataDir, DataDirNotWritable, HubRunning, WriterLock
from appliance.kernel.ids import TOKEN_PREFIX, IdFactory
from appliance.kernel.log import Log
from appliance.kernel.reader import Reader, open_connection
from appliance.kernel.schema import create_workspace
from appliance.tokens import queries, wire, writes
from appliance.tokens.offline import File, tokens_of
from appliance.tokens.service import Tokens
from tests.support.clock import FakeClock

READ, POST = "hub:read", "hub:post"


class House:
    """Tokens on a file, and the book a guard would read."""

    def __init__(self, path: Path) -> None:
        self.datadir = DataDir(path)
        create_workspace(
            self.datadir, clock=SystemClock(), log=Log(sys.stderr.buffer, level="error")
        )
        self.clock = FakeClock()
        self.connection = open_connection(self.datadir.database("auth"), "OFF")
        runner = BatchRunner(self.connection, self.clock, IdFactory(self.clock))
        self.file = File(runner, Reader(self.connection, self.clock, query_only=False))
        self.start()

    def start(self) -> None:
        self.book = TokenBook()
        self.tokens = Tokens(self.file, self.book, self.datadir, self.clock, 300)

    def create(self, name="bot", scopes=(READ,), days=None, senders=None) -> wire.TokenIssued:
        return self.tokens.create(wire.CreateToken(name, list(scopes), days, senders))

    def rotate(self, token_id: str, grace: float | None = None) -> str:
        return self.tokens.rotate(token_id, wire.RotateToken(grace)).secret

    def opens(self, secret: str) -> bool:
        """As the guard judges it."""
        found = self.book.find(secret)
        return found is not None and self.book.in_force(found, self.clock.now_ms())

    def state(self, token_id: str) -> str:
        return self.file.read(queries.token, token_id, self.clock.now_ms()).state


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path)
    yield house
    house.connection.close()


# -- issuing -------------------------------------------------------------------------------


def test_a_secret_is_told_once_and_never_stored(house):
    issued = house.create()
    assert issued.secret.startswith(TOKEN_PREFIX)
    assert house.opens(issued.secret)
    assert issued.secret not in repr(house.tokens.list_all())
    house.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert issued.secret.encode() not in house.datadir.database("auth").read_bytes()


def test_a_name_in_force_is_taken_and_free_again_afterwards(house):
    first = house.create("ci")
    with pytest.raises(wire.TokenNameTaken) as caught:
        house.create("ci")
    assert caught.value.details == {"token_id": first.token.id}
    house.tokens.revoke(first.token.id)
    second = house.create("ci", days=1)
    house.clock.pass_seconds(86_401)
    assert house.state(second.token.id) == "expired"
    house.create("ci")


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
        (["hub:everything"], True),
    ],
)
def test_scopes_that_can_be_given(house, scopes, refused):
    if refused:
        with pytest.raises(wire.UnknownScope):
            house.create(scopes=scopes)
    else:
        assert sorted(house.create(scopes=scopes).token.scopes) == sorted(scopes)


@pytest.mark.parametrize("name", [" a", "a\nb", "\x1b[1m", " ", "\u200b", "\u3164"])
def test_a_name_is_one_printable_line(house, name):
    with pytest.raises(wire.Invalid):
        house.create(name)


def test_there_is_an_end_to_tokens(house, monkeypatch):
    monkeypatch.setattr(writes, "TOKENS_MAX", 2)
    house.create("one")
    with pytest.raises(wire.TooManyTokens):
        house.create("two")


@pytest.mark.parametrize(
    ("scopes", "read", "post"),
    [
        (["hub:read"], None, None),
        (["hub:read@a"], {"a"}, None),
        (["hub:read@a", "hub:read@b"], {"a", "b"}, None),
        (["hub:read", "hub:read@a"], None, None),
        (["admin", "hub:read@a"], None, None),
        (["hub:read", "hub:post@a"], None, {"a"}),
    ],
)
def test_scopes_with_channels(scopes, read, post):
    principal = principal_of("t", "t", scopes)
    assert principal.channels_for(READ) == read
    assert principal.channels_for(POST) == post
    assert all(principal.allows(scope.partition("@")[0]) for scope in scopes)
    assert (principal.channels is None) == (read is None and post is None)


# -- the end of a token ----------------------------------------------------------------------


def test_revoking_ends_at_once_and_again_changes_nothing(house):
    issued = house.create()
    told = []
    house.book.watch(house.book.find(issued.secret), lambda: told.append("over"))
    first = house.tokens.revoke(issued.token.id).token
    assert (house.opens(issued.secret), told) == (False, ["over"])
    house.clock.pass_seconds(5)
    assert house.tokens.revoke(issued.token.id).token == first


def test_an_expired_token_ends_without_anybody_doing_anything(house):
    issued = house.create(days=1)
    told = []
    house.book.watch(house.book.find(issued.secret), lambda: told.append("over"))
    house.clock.pass_seconds(86_399)
    house.book.end(house.clock.now_ms())
    assert (house.opens(issued.secret), told) == (True, [])
    house.clock.pass_seconds(1)
    assert not house.opens(issued.secret)
    house.book.end(house.clock.now_ms())
    assert told == ["over"]


def test_who_stopped_watching_is_not_told(house):
    issued = house.create()
    told = []
    house.book.watch(house.book.find(issued.secret), lambda: told.append("over"))()
    house.book.watch(ANONYMOUS, lambda: told.append("nobody"))
    house.tokens.revoke(issued.token.id)
    assert told == []


def test_unknown_tokens_and_the_servers_own(house):
    with pytest.raises(wire.NoSuchToken):
        house.tokens.revoke("tok_none")
    with pytest.raises(wire.NoSuchToken):
        house.rotate("tok_none")
    with pytest.raises(wire.ServerTokenStays):
        house.tokens.revoke("server")
    issued = house.create()
    house.tokens.revoke(issued.token.id)
    with pytest.raises(wire.TokenOver):
        house.rotate(issued.token.id)


# -- rotation --------------------------------------------------------------------------------


def test_two_secrets_open_during_the_grace_time_and_one_after_it(house):
    issued = house.create()
    told = []
    house.book.watch(house.book.find(issued.secret), lambda: told.append("over"))
    new = house.rotate(issued.token.id, 10)
    assert (house.opens(issued.secret), house.opens(new), told) == (True, True, [])
    assert house.book.find(new).id == house.book.find(issued.secret).id
    house.clock.pass_seconds(10)
    house.book.end(house.clock.now_ms())
    assert (house.opens(issued.secret), house.opens(new), told) == (False, True, ["over"])


def test_a_second_rotation_in_the_grace_time_leaves_two_secrets(house):
    issued = house.create()
    second = house.rotate(issued.token.id, 1000)
    third = house.rotate(issued.token.id, 1000)
    assert [house.opens(each) for each in (issued.secret, second, third)] == [False, True, True]


def test_no_grace_ends_all_former_secrets_at_once(house):
    issued = house.create()
    second = house.rotate(issued.token.id, 1000)
    third = house.rotate(issued.token.id, 0)
    assert [house.opens(each) for each in (issued.secret, second, third)] == [False, False, True]
    assert house.tokens.list_all().tokens[-1].rotating_until is None


def test_a_token_that_expires_takes_its_former_secret_along(house):
    issued = house.create(days=1)
    house.rotate(issued.token.id, 7 * 86_400)
    house.clock.pass_seconds(86_400)
    assert not house.opens(issued.secret)


def test_the_servers_token_is_in_its_file_and_opens_after_a_restart(house):
    old = house.datadir.read_token()
    house.datadir.write_private(house.datadir.server_file, '{"port": 1, "auth_token": "x"}')
    new = house.rotate("server")
    assert house.datadir.read_token() == new
    assert house.datadir.read_server().auth_token == new
    assert house.datadir.token_file.stat().st_mode & 0o777 == 0o600
    house.start()
    assert house.opens(old)
    assert house.book.find(new).allows("tokens:admin")
    house.clock.pass_seconds(300)
    assert (house.opens(old), house.opens(new)) == (False, True)


def test_a_file_that_cannot_be_written_leaves_the_old_token(house, monkeypatch):
    old = house.datadir.read_token()

    def refuse(*_):
        raise DataDirNotWritable

    monkeypatch.setattr(house.datadir, "write_private", refuse)
    with pytest.raises(DataDirNotWritable):
        house.rotate("server", 0)
    house.clock.pass_seconds(1000)
    assert house.opens(old)
    assert house.datadir.read_token() == old


def test_rotations_of_the_servers_token_do_not_cross(house, monkeypatch):
    write_private, refused = house.datadir.write_private, []

    def meanwhile(*arguments):
        with pytest.raises(wire.RotationRuns) as caught:
            house.rotate("server")
        refused.append(caught)
        write_private(*arguments)

    monkeypatch.setattr(house.datadir, "write_private", meanwhile)
    new = house.rotate("server")
    assert (house.opens(new), house.datadir.read_token(), len(refused)) == (True, new, 1)


def test_a_rotation_cut_before_the_file_was_written_is_undone_by_the_next_start(house):
    old = house.datadir.read_token()
    house.file.write(writes.rotate, "server", hash_token("never seen"), 1000)
    house.start()
    assert (house.opens(old), house.opens("never seen")) == (True, False)
    house.clock.pass_seconds(1000)
    assert house.opens(old)


# -- upkeep ----------------------------------------------------------------------------------


def test_last_use_counts_lookups_and_streams(house):
    issued = house.create()
    assert house.book.take_used() == set()
    principal = house.book.find(issued.secret)
    assert house.book.take_used() == {issued.token.id}
    unwatch = house.book.watch(principal, lambda: None)
    assert house.book.take_used() == {issued.token.id}
    unwatch()
    assert house.book.take_used() == set()
    house.file.write(writes.note_use, [issued.token.id], 2000)
    house.file.write(writes.note_use, [issued.token.id], 1000)  # a clock that went back
    (used,) = [t.last_used_at for t in house.tokens.list_all().tokens if t.name == "bot"]
    assert used == "1970-01-01T00:00:02.000Z"


def test_what_is_long_over_is_forgotten_and_nothing_else(house):
    revoked, expired = house.create("a"), house.create("b", days=1)
    stays = house.create("c")
    house.rotate(revoked.token.id, 5)
    house.tokens.revoke(revoked.token.id)
    house.clock.pass_seconds(2 * 86_400)
    assert house.file.write(writes.forget, house.clock.now_ms()) == 2
    left = {token.id for token in house.tokens.list_all().tokens}
    assert left == {"server", stays.token.id}
    assert expired.token.id not in left


# -- without a hub ---------------------------------------------------------------------------


def test_offline_needs_the_lock(tmp_path):
    house = House(tmp_path)
    house.connection.close()
    lock = WriterLock(house.datadir, "somebody")
    lock.acquire()
    with pytest.raises(HubRunning), tokens_of(house.datadir):
        pass
    lock.release()
    with tokens_of(house.datadir) as tokens:
        issued = tokens.create(wire.CreateToken("bot", [READ]))
    assert lock.holder() is None
    with closing(sqlite3.connect(house.datadir.database("auth"))) as connection:
        (digest,) = connection.execute(
            "SELECT hash FROM tokens WHERE id = ?", (issued.token.id,)
        ).fetchone()
    assert digest == hash_token(issued.secret)


def test_a_token_may_be_limited_to_sender_names(house):
    made = house.create("ci", senders=["tester", "builder", "tester"])
    assert made.token.senders == ["builder", "tester"]
    assert house.book.find(made.secret).senders == frozenset({"builder", "tester"})
    rotated = house.tokens.rotate(made.token.id, wire.RotateToken(60))
    for secret in (made.secret, rotated.secret):
        assert house.book.find(secret).senders == frozenset({"builder", "tester"})
    assert [one.senders for one in house.tokens.list_all().tokens if one.name == "ci"] == [
        ["builder", "tester"]
    ]
    assert house.book.find(house.create("any").secret).senders is None


@pytest.mark.parametrize("name", ["server", "owner", "anonymous", "plugin:urls", "appliance:x"])
def test_a_token_is_not_called_like_somebody_else(house, name):
    with pytest.raises(wire.Invalid):
        house.create(name)


@pytest.mark.parametrize("sender", [" ", "\u200b", "a\0b"])
def test_a_sender_name_shows_something(house, sender):
    with pytest.raises(wire.Invalid):
        house.create("ci", senders=[sender])


def test_the_list_is_limited_in_bytes(house):
    """Tokens with as many scopes as there may be; all were made in the same millisecond."""
    scopes = [f"streams:{number:04}{'x' * 250}:enqueue" for number in range(wire.SCOPES_MAX)]
    ids = [house.create(f"bot{number}", scopes).token.id for number in range(8)]
    seen, page = [], house.tokens.list_all()
    while True:
        assert len(msgspec.json.encode(page)) <= 1 << 20
        seen += [one.id for one in page.tokens]
        if not page.has_more:
            break
        page = house.tokens.list_all(wire.TokensQuery(after=page.next))
    assert len(page.tokens) < len(seen)
    assert len(seen) == len(set(seen))
    assert set(seen) >= set(ids)
