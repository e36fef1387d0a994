"""The body of a request, read by the application, and what follows where that fails."""

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gunicorn.http.body import Body

from appliance.web.connections import Connection
from appliance.web.exchange import Input


class FullMemory(io.BytesIO):
    """Fails as BytesIO does without memory: it loses its data and is closed."""

    def write(self, data: Any) -> int:
        self.close()
        raise MemoryError


def test_body_that_memory_did_not_suffice_for_ends_its_connection() -> None:
    connection = SimpleNamespace(
        since=0, pool=SimpleNamespace(sweeps=0), wait_for=lambda limit: None
    )
    body = Body(SimpleNamespace(read=lambda size: b"x" * size))
    body.buf = FullMemory()
    request: Any = SimpleNamespace(body=body, _expected_100_continue=False)
    stream = Input(cast(Connection, connection), request)
    assert not stream.broken
    with pytest.raises(MemoryError):
        stream.read(8)
    assert stream.broken
