"""One-time links and sessions: what opens, what ends, and what is stored."""

import pytest

from appliance.kernel.auth import ANONYMOUS
from appliance.kernel.errors import Forbidden, Unauthenticated
from appliance.tokens import session_rows, wire, writes
from appliance.tokens.sessions import SESSION_MS, Sessions

ALL = wire.SessionsQuery()


@pytest.fixture
def sessions(fixture):
    return Sessions(fixture.file, fixture.tokens, fixture.clock)


@pytest.fixture
def bot(fixture):
    return fixture.book.find(fixture.create("bot", senders=["bot"]).secret)


def invite(sessions, caller, **more) -> wire.OpenSession:
    return wire.OpenSession(sessions.invite(wire.CreateInvitation(**more), caller).secret)


def secret_of(opened) -> str:
    """The text whose hash is stored: both secrets."""
    session, cookie = opened
    return cookie + session.page_secret


def opened(fixture, sessions, bot):
    return fixture.book.find(secret_of(sessions.open(bot, wire.OpenSession())))


def test_invite_link_expires_after_lifetime(fixture, sessions, bot) -> None:
    link = invite(sessions, bot, lifetime_seconds=60)
    fixture.clock.pass_seconds(61)
    with pytest.raises(wire.InviteRefused, match="expired"):
        sessions.open(ANONYMOUS, link)
    with pytest.raises(wire.InviteRefused):
        sessions.open(ANONYMOUS, wire.OpenSession("agl_guessed"))
    with pytest.raises(Unauthenticated):
        sessions.open(ANONYMOUS, wire.OpenSession())


def test_used_link_stays_refused_after_clock_change(fixture, sessions, bot) -> None:
    used, expired = invite(sessions, bot), invite(sessions, bot, lifetime_seconds=60)
    secret = secret_of(sessions.open(ANONYMOUS, used))
    fixture.clock.pass_seconds(3600)
    fixture.file.write(writes.prune, 0)
    fixture.clock.pass_seconds(-7200)
    for link in (used, expired):
        with pytest.raises(wire.InviteRefused):
            sessions.open(ANONYMOUS, link)
    assert fixture.opens(secret), "a session lasts longer than the jump"


def test_session_ends_with_the_secret_that_opened_it(fixture, sessions, bot) -> None:
    session = opened(fixture, sessions, bot)
    fixture.rotate(bot.id, 60)
    current = fixture.book.is_valid(session, fixture.clock.now_ms())
    fixture.rotate(bot.id, 0)
    assert (current, fixture.book.is_valid(session, fixture.clock.now_ms())) == (True, False)


def test_link_of_a_replaced_secret_does_not_outlive_it(fixture, sessions, bot) -> None:
    fixture.rotate(bot.id, 60)
    link = invite(sessions, bot, lifetime_seconds=600)
    fixture.clock.pass_seconds(61)
    with pytest.raises(wire.CredentialRefused):
        sessions.open(ANONYMOUS, link)


def test_session_expires_and_survives_a_restart(fixture, sessions, bot) -> None:
    secret = secret_of(sessions.open(bot, wire.OpenSession()))
    fixture.start()
    assert fixture.opens(secret)
    fixture.clock.pass_seconds(SESSION_MS / 1000 + 1)
    assert not fixture.opens(secret)
    fixture.file.write(writes.prune, 0)
    assert fixture.connection.execute("SELECT count(*) FROM sessions").fetchone() == (0,)


def test_session_can_not_open_another_to_last_longer(fixture, sessions, bot) -> None:
    with pytest.raises(wire.CredentialRefused):
        sessions.open(opened(fixture, sessions, bot), wire.OpenSession())


def test_only_admin_invites_for_another_token_and_ends_its_sessions(fixture, sessions, bot) -> None:
    server = fixture.book.find(fixture.datadir.read_token())
    other = opened(fixture, sessions, server)
    with pytest.raises(Forbidden):
        invite(sessions, bot, token_id="server")
    with pytest.raises(wire.NoSuchSession):
        sessions.end(bot, other.session)
    mine = sessions.open(ANONYMOUS, invite(sessions, server, token_id=bot.id))[0].session
    assert [each.id for each in sessions.list_all(ALL, bot).sessions] == [mine]
    page = sessions.list_all(wire.SessionsQuery(limit=1), other)
    rest = sessions.list_all(wire.SessionsQuery(page.next), other).sessions
    assert [(each.id, each.current) for each in (*page.sessions, *rest)] == [
        (other.session, True), (mine, False),
    ]  # fmt: skip
    sessions.end(server, mine)
    sessions.end(other, other.session)
    assert sessions.list_all(ALL, server).sessions == []


def test_oldest_session_of_a_token_ends_above_the_limit(fixture, sessions, bot) -> None:
    first = secret_of(sessions.open(bot, wire.OpenSession()))
    for _ in range(session_rows.PER_TOKEN_MAX):
        fixture.clock.pass_seconds(1)
        sessions.open(bot, wire.OpenSession())
    assert not fixture.opens(first)
    assert len(sessions.list_all(ALL, bot).sessions) == session_rows.PER_TOKEN_MAX


def test_no_secret_is_stored(fixture, sessions, bot) -> None:
    link = invite(sessions, bot)
    secret = secret_of(sessions.open(ANONYMOUS, link))
    stored = "\n".join(fixture.connection.iterdump())
    assert "ses_" in stored
    assert link.invite not in stored
    assert secret not in stored
