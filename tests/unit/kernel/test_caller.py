"""Whether the client for whom a greenlet works is still connected."""

import pytest

from appliance.kernel import caller


class Client:
    def __init__(self, gone):
        self.gone = gone

    def is_gone(self):
        return self.gone


@pytest.mark.parametrize(
    ("client", "there"), [(None, True), (Client(False), True), (Client(True), False)]
)
def test_caller_is_there_until_its_client_is_gone(client, there):
    token = caller.current.set(client)
    try:
        assert caller.is_there() is there
    finally:
        caller.current.reset(token)
