"""Which port a start gets: the one it wants, or the next free one, never one that is taken."""

import io
import os
import socket
import threading
from contextlib import ExitStack, closing

import pytest

from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.process.listeners import (
    PortTaken,
    bind,
    candidates,
    remembered_port,
)
from appliance.workspace.datadir import DataDir

HOST = "127.0.0.1"


@pytest.fixture
def output():
    return io.BytesIO()


@pytest.fixture
def log(output):
    return Log(output, clock=SystemClock())


@pytest.fixture
def datadir(tmp_path):
    datadir = DataDir(tmp_path)
    datadir.dir.mkdir()
    return datadir


def taken(stack):
    """A port of our own that somebody listens on."""
    listener = stack.enter_context(closing(socket.socket()))
    listener.bind((HOST, 0))
    listener.listen()
    return listener.getsockname()[1]


@pytest.mark.parametrize(
    ("wanted", "remembered", "first"),
    [
        (None, 0, [7464, 7465, 7466]),
        (None, 9000, [9000]),
        (0, 0, [0]),
        (0, 9000, [9000, 0]),
        (8080, 9000, [8080]),
    ],
)
def test_order_of_the_ports_that_are_tried(wanted, remembered, first):
    assert list(candidates(wanted, remembered))[:3] == first


def test_next_free_port_is_used_and_stored_if_the_default_is_taken(datadir, log, output):
    with ExitStack() as stack:
        default = taken(stack)
        first = stack.enter_context(closing(bind(HOST, None, datadir, log, default)))
        port = first.getsockname()[1]
        assert default < port
        assert remembered_port(datadir) == port
        assert f"port {default} is in use: listening on port {port}" in output.getvalue().decode()
        first.close()
        second = stack.enter_context(closing(bind(HOST, None, datadir, log, default)))
        assert second.getsockname()[1] == port
        assert output.getvalue().count(b"PORT_CHANGED") == 1


def test_port_that_was_served_before_is_used_or_its_owner_is_named(datadir, log):
    with ExitStack() as stack:
        port = taken(stack)
        (datadir.dir / "port").write_text(str(port))
        with pytest.raises(PortTaken, match=rf"{HOST}:{port}: .* by pid {os.getpid()} \(.*python"):
            bind(HOST, None, datadir, log)
        assert remembered_port(datadir) == port


def test_a_port_out_of_range_in_the_file_is_ignored(datadir):
    for text in ("", "x", "-1", "0", "65536"):
        (datadir.dir / "port").write_text(text)
        assert remembered_port(datadir) == 0


def test_concurrent_starts_get_different_ports(tmp_path, log):
    """Two sockets may be bound to one port; only one of them may listen."""
    count = 8
    with ExitStack() as stack:
        default = taken(stack)
        ready = threading.Barrier(count)
        listeners: list[socket.socket] = []

        def start(number):
            datadir = DataDir(tmp_path / str(number))
            datadir.dir.mkdir(parents=True)
            ready.wait(30)
            listeners.append(stack.enter_context(closing(bind(HOST, None, datadir, log, default))))

        threads = [threading.Thread(target=start, args=(number,)) for number in range(count)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert len({each.getsockname()[1] for each in listeners}) == count
