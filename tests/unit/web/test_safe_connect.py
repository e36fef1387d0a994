"""Connections go only to checked addresses, in the order of the resolver."""

import pytest

from appliance.hub.webhooks.settings import WebhookSettings
from appliance.kernel.http_client import Unreachable
from appliance.web import safe_connect
from appliance.web.address import BadWebhookUrl

RULES = WebhookSettings(allow_loopback=False)


def allowed(*addresses):
    return safe_connect.resolve_allowed(lambda _host, _port: addresses, "x.org", 25, RULES)


def test_all_addresses_of_a_name_are_returned_if_each_is_allowed():
    assert allowed("93.184.216.34", "1.1.1.1") == ("93.184.216.34", "1.1.1.1")


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
def test_name_with_one_forbidden_address_is_refused(address):
    with pytest.raises(BadWebhookUrl):
        allowed("93.184.216.34", address)


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
