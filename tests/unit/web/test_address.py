"""Which addresses may be registered, and which may be connected to."""

import pytest

from appliance.hub.webhooks.settings import WebhookSettings
from appliance.web.address import BadWebhookUrl, check_address, check_url

USUAL = WebhookSettings()
STRICT = WebhookSettings(allow_loopback=False)
INSIDE = WebhookSettings(allow_private=True)
OPEN = WebhookSettings(allow_private=True, allow_http=True)


def allowed(url, rules=USUAL):
    try:
        check_url(url, rules)
    except BadWebhookUrl:
        return False
    return True


def test_a_refusal_names_the_field_and_repeats_nothing_of_the_url():
    with pytest.raises(BadWebhookUrl) as refused:
        check_url("https://user:secret@example.com/", USUAL)
    assert refused.value.details == {"field": "url"}
    assert "secret" not in refused.value.message + refused.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com:8443/hooks?key=1",
        "https://_internal.example.com/",
        "https://xn--bcher-kva.example/",
        "https://93.184.216.34/",
        "https://[2606:2800:220:1::1]/",
        "https://[64:ff9b::93.184.216.34]/",  # how a network without IPv4 reaches it
        "http://127.0.0.1:9000/hook",
        "http://localhost:9000",
        "http://me.localhost/",
        "http://[::1]:9000/",
        "http://[::ffff:127.0.0.1]/",
        "https://localhost/",
    ],
)
def test_usual_addresses_pass(url):
    assert allowed(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",  # readable on the way
        "http://93.184.216.34/",
        "https://user:secret@example.com/",
        "https://example.com/#secret",
        "ftp://example.com/",
        "example.com",
        "//example.com/",
        "https://",
        "https:///path",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://exa mple.com/",
        "https://example.com\\@127.0.0.1/",
        "https://bücher.example/",
        "https://example.com/\nX: y",
        "https://[::1",
        "https://-a-.example..com/",
        "https://" + "a" * 64 + ".com/",
        "https://example.com/" + "a" * 2048,
    ],
)
def test_malformed_and_unsafe_urls_are_refused(url):
    assert not allowed(url, OPEN if url.startswith("https") else USUAL)


@pytest.mark.parametrize(
    "host",
    [
        "10.0.0.1",
        "172.16.5.4",
        "192.168.1.1",
        "100.64.0.1",
        "198.18.0.1",
        "[fd00::1]",
        "203.0.113.9",
        "[2001:db8::1]",
        "[::ffff:10.0.0.1]",
    ],
)
def test_private_networks_have_to_be_allowed(host):
    assert not allowed(f"https://{host}/")
    assert not allowed(f"http://{host}/", INSIDE)
    assert allowed(f"https://{host}/", INSIDE)
    assert allowed(f"http://{host}/", OPEN)


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "224.0.0.1",
        "240.0.0.1",
        "169.254.169.254",  # the metadata service of clouds, with credentials
        "[::]",
        "[fe80::1]",
        "[fe80::1%25eth0]",
        "[ff02::1]",
        "[::ffff:169.254.169.254]",
        "192.0.0.8",
        "192.0.0.192",  # and so do these, outside of link-local networks
        "100.100.100.200",
        "168.63.129.16",
        "[::ffff:168.63.129.16]",
        "[fd00:ec2::254]",
        "[fd20:ce::254]",
        "[fec0::1]",  # site-local, of old
        "[::10.0.0.1]",  # IPv4 addresses in IPv6 ones, and tunnels
        "[::ffff:0:93.184.216.34]",
        "[64:ff9b::10.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::168.63.129.16]",
        "[64:ff9b:1::1]",
        "[2001:0:5ef5:79fb::1]",
        "[2002:0a00:0001::]",
        "[2002:7f00:0001::]",
        "[100::1]",
        "[5f00::1]",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
        "example.1",
        "1.2.3.4.5",
    ],
)
def test_special_networks_are_refused_in_every_form(host):
    for rules in (USUAL, OPEN):
        assert not allowed(f"https://{host}/", rules)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "a.localhost", "LOCALHOST."])
def test_loopback_can_be_refused(host):
    assert not allowed(f"https://{host}/", STRICT)
    assert not allowed(f"http://{host}/", STRICT)


def test_resolved_addresses_follow_the_same_rules():
    check_address("93.184.216.34", USUAL)
    check_address("127.0.0.1", USUAL)
    check_address("10.0.0.1", INSIDE)
    for address in ("10.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "fe80::1%eth0", "nonsense"):
        with pytest.raises(BadWebhookUrl):
            check_address(address, USUAL)
    with pytest.raises(BadWebhookUrl):
        check_address("::ffff:127.0.0.1", STRICT)
