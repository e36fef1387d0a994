"""Requests at planned instants, whether or not those before them were answered."""

import select
from collections.abc import Sequence

from tests.bench.client import NOW, Http, check
from tests.bench.target import RowFailed, Target

CONNECTIONS = 32
LATE_SECONDS_MAX = 30.0


def send_as_planned(
    target: Target, planned: Sequence[tuple[float, str, bytes]]
) -> dict[str, list[float]]:
    """`planned`: seconds from now, a kind, and a request. For each kind, the seconds from the
    planned instant to the reply. Raises RowFailed if one fails, or nothing is answered."""
    seconds: dict[str, list[float]] = {kind: [] for _, kind, _ in planned}
    free = [Http(target) for _ in range(CONNECTIONS)]
    poll, waiting = select.epoll(), {}
    for connection in free:
        poll.register(connection.sock, select.EPOLLIN)
    began, index = NOW() + 0.1, 0
    try:
        while index < len(planned) or waiting:
            while free and index < len(planned) and NOW() - began >= planned[index][0]:
                connection = free.pop()
                waiting[connection.sock.fileno()] = connection, planned[index]
                connection.send(planned[index][2])
                index += 1
            pause = planned[index][0] - (NOW() - began) if index < len(planned) else 1.0
            for descriptor, _ in poll.poll(max(0.0, pause) if free else 1.0):
                connection, (at, kind, _) = waiting[descriptor]
                answer = connection.receive()
                if answer is not None:
                    check(*answer)
                    seconds[kind].append(NOW() - began - at)
                    free.append(waiting.pop(descriptor)[0])
            if index < len(planned) and NOW() - began - planned[index][0] > LATE_SECONDS_MAX:
                raise RowFailed("the requests wait for a connection")
    finally:
        poll.close()
        for connection in [*free, *(pair[0] for pair in waiting.values())]:
            connection.close()
    return seconds
