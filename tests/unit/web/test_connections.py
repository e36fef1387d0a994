"""Which connections are closed for others, in which order, and how long a wait may be."""

import resource
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gevent import socket as gevent_socket

from appliance.kernel.clock import SystemClock
from appliance.web import connections
from appliance.web.connections import (
    BODY,
    HEAD,
    IDLE,
    LINGER,
    SEND,
    WORK,
    Connection,
    ConnectionPool,
    descriptors,
)
from appliance.web.exchange import Input
from appliance.web.settings import HttpSettings
from appliance.web.unsent import UNSENT_BYTES_MAX, UnsentBudget

Open = Callable[..., Connection]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ConnectionPool:
    monkeypatch.setattr(connections, "PROBE_CONNECTIONS_MAX", 1)
    monkeypatch.setattr(connections, "ANONYMOUS_MAX", 1)
    return ConnectionPool(
        HttpSettings(connections_max=4), UnsentBudget(UNSENT_BYTES_MAX, SystemClock())
    )


@pytest.fixture
def opened(pool: ConnectionPool) -> Iterator[Open]:
    ends: list[Any] = []

    def open_(state: int = IDLE, authenticated: bool = False, sent: bytes = b"") -> Connection:
        pair: Any = gevent_socket.socketpair()  # type: ignore[attr-defined]
        ends.extend(pair)
        pair[1].sendall(sent)
        connection = pool.open(pair[0], ("127.0.0.1", "1"))
        assert connection is not None
        connection.state, connection.authenticated = state, authenticated
        pool.sweeps += 1
        return connection

    yield open_
    for end in ends:
        end.close()


@pytest.mark.parametrize("state", [IDLE, HEAD, BODY, LINGER])
def test_any_wait_is_closed_for_a_new_connection(pool, opened, state):
    busy = [opened(WORK, authenticated=True) for _ in range(3)]
    waiting = opened(state)
    new = opened()
    assert not new.reserved
    assert set(pool) == {*busy, new}
    assert waiting.sock.recv(1) == b""


def test_the_oldest_wait_is_closed_first(pool: ConnectionPool, opened: Open) -> None:
    first, second, third, fourth = opened(LINGER), opened(BODY), opened(HEAD), opened(IDLE)
    first.wait_for(HEAD)
    new = opened()
    assert set(pool) == {first, third, fourth, new}
    opened()
    assert third not in set(pool)
    assert second not in set(pool)


def test_idle_connection_with_unread_bytes_is_closed_last(pool, opened):
    asking, idle = opened(sent=b"GET / HTTP/1.1\r\n"), opened()
    opened(WORK, authenticated=True)
    opened(WORK, authenticated=True)
    opened()
    assert asking in set(pool)
    assert idle not in set(pool)


def test_work_without_a_token_is_closed_beyond_its_quota(pool, opened):
    connections = opened(WORK, authenticated=True)
    strangers = [opened(WORK), opened(SEND), opened(WORK)]
    newer = [opened(WORK, authenticated=True), opened(WORK, authenticated=True)]
    assert set(pool) == {connections, strangers[2], *newer}
    assert opened().reserved


def test_reserved_connection_is_promoted_when_the_pool_has_capacity(pool, opened):
    busy = [opened(WORK, authenticated=True) for _ in range(4)]
    new = opened(HEAD)
    assert new.reserved
    assert not pool.promote(new)
    busy[0].wait_for(IDLE)
    assert pool.promote(new)
    assert not new.reserved
    assert busy[0] not in set(pool)


def test_connection_beyond_the_reserved_ones_is_refused(pool: ConnectionPool, opened: Open) -> None:
    for _ in range(4):
        opened(WORK, authenticated=True)
    first = opened()
    assert first.reserved
    second = opened()
    assert second.reserved
    assert first not in set(pool)
    second.wait_for(WORK)
    pair: Any = gevent_socket.socketpair()  # type: ignore[attr-defined]
    assert pool.open(pair[0], ("127.0.0.1", "1")) is None


def test_lingering_connection_is_closed_at_its_limit(pool: ConnectionPool, opened: Open) -> None:
    lingering, other = opened(LINGER), opened(BODY)
    lingering.wait_for(LINGER)
    other.wait_for(BODY)
    for _ in range(4):  # half a second each
        pool.sweep()
    assert lingering.sock.recv(1) == b""
    with pytest.raises(BlockingIOError):  # it is open, and nothing has arrived
        other.sock._sock.recv(1)  # type: ignore[attr-defined]


def test_body_in_pieces_has_one_limit_for_all(opened: Open) -> None:
    connection = opened(WORK)
    waited = []

    class Trickle:
        def read(self, _size: int | None) -> bytes:
            connection.pool.sweeps += 3
            waited.append(connection.pool.sweeps - connection.since)
            return b"x"

    class RequestedPoll:
        body = Trickle()
        _expected_100_continue = False

    given: Any = RequestedPoll()
    body = Input(connection, given)
    for _ in range(3):
        body.read(1)
        connection.pool.sweeps += 100  # worked on meanwhile
    assert waited == [3, 6, 9]


def test_limit_on_open_files_is_raised_as_far_as_allowed() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert descriptors(200) == 200
        assert descriptors(300) == 300
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
