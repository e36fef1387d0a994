"""Connections go only to checked addresses, in the order of the resolver."""

import pytest

from appliance.hub.webhooks.settings import WebhookSettings
from appliance.kernel.http_client import Unreachable
from appliance.web import safe_connect

RULES = WebhookSettings(allow_loopback=False)


def allowed(*addresses):
    return safe_connect.resolve_allowed(lambda _host, _port: addresses, "x.org", 25, RULES)


def test_name_without_addresses_is_unreachable():
    with pytest.raises(Unreachable):
        allowed()


def test_unresolvable_name_is_unreachable():
    def fail(_host, _port):
        raise OSError

    with pytest.raises(Unreachable):
        safe_connect.resolve_allowed(fail, "x.org", 25, RULES)


def test_first_address_that_accepts_is_used_within_the_limit():
    tried = []

    def connect(address):
        tried.append(address)
        if address != "third":
            raise ConnectionRefusedError(address)
        return address

    assert safe_connect.connect_first(["first", "second", "third", "fourth"], connect) == "third"
    assert tried == ["first", "second", "third"]
    tried.clear()
    names = [str(number) for number in range(safe_connect.ADDRESSES_MAX + 1)]
    with pytest.raises(ConnectionRefusedError):
        safe_connect.connect_first(names, connect)
    assert tried == names[:-1]
