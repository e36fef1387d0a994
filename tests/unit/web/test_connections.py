"""Which connections are closed for others, and in which order."""

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
    Connection,
    ConnectionPool,
)
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


def test_the_oldest_wait_is_closed_first(pool: ConnectionPool, opened: Open) -> None:
    first, second, third, fourth = opened(LINGER), opened(BODY), opened(HEAD), opened(IDLE)
    first.wait_for(HEAD)
    new = opened()
    assert set(pool) == {first, third, fourth, new}
    opened()
    assert third not in set(pool)
    assert second not in set(pool)
