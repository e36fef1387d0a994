"""Which addresses the appliance may be made to call. Pure: names are not resolved here.

`check_url` judges what somebody registers. Who connects must also ask `check_address` about
every address that a name resolved to, and connect to that very address: a name may point
elsewhere by then.
"""

import ipaddress
import re
from typing import Protocol
from urllib.parse import urlsplit

from appliance.kernel.errors import Invalid

URL_CHARACTERS_MAX = 2048
_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")
_NAME = re.compile(r"(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z0-9_-]{1,63}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


# From IANA's registries of special-purpose addresses; Python's own tables differ by version.
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")  # all that is assigned for global use
_UNIQUE_LOCAL = ipaddress.ip_network("fc00::/7")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NEVER = _networks(
    "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4",
    "2001::/23",  # protocols, Teredo tunnels among them
    "2002::/16",  # 6to4 tunnels
    # Where clouds answer their machines, credentials among it, outside of link-local networks.
    "100.100.100.200/32", "168.63.129.16/32", "fd00:42::42/128", "fd00:ec2::/32",
    "fd20:ce::254/128",
)  # fmt: skip
_PRIVATE = _networks(
    "10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16",
    "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "2001:db8::/32", "3fff::/20", "fc00::/7",
)  # fmt: skip


class AddressRules(Protocol):
    """What the settings allow beyond public addresses."""

    @property
    def allow_loopback(self) -> bool: ...
    @property
    def allow_private(self) -> bool: ...


class Rules(AddressRules, Protocol):
    """What they allow beyond https."""

    @property
    def allow_http(self) -> bool: ...


class BadWebhookUrl(Invalid):
    sentence = "events may not be sent to that address"
    advice = "use https and a public name, or see [webhooks] in agentlip.toml"


def check_url(url: str, rules: Rules) -> None:
    """Pass, or raise BadWebhookUrl saying what is wrong. The message holds no part of the URL,
    for there may be a secret in it."""
    if len(url) > URL_CHARACTERS_MAX:
        raise _refused(f"the URL is longer than {URL_CHARACTERS_MAX} characters")
    if not _VISIBLE_ASCII.fullmatch(url) or "\\" in url:
        raise _refused("the URL holds spaces, backslashes or characters beyond ASCII")
    try:
        parts = urlsplit(url)
        port, host = parts.port, (parts.hostname or "").removesuffix(".")
    except ValueError:
        raise _refused("that is not a URL") from None
    if parts.scheme not in ("https", "http"):
        raise _refused("only https (and where it is allowed, http) addresses are called")
    if "@" in parts.netloc:
        raise _refused("the URL holds credentials; receivers know us by the signature")
    if parts.fragment or "#" in url:
        raise _refused("the URL has a fragment")
    if not host or port == 0:
        raise _refused("the URL names no host or no port")
    near = _check_host(host, rules)
    if parts.scheme == "http" and not near and not rules.allow_http:
        raise _refused("plain http is only for receivers on this machine")


def check_address(address: str, rules: AddressRules) -> None:
    """Pass, or raise BadWebhookUrl: for an address in a URL, or one a name resolved to."""
    try:
        ip = _inner(ipaddress.ip_address(address))
    except ValueError:
        raise _refused("that is not an IP address") from None
    if ip.is_loopback:
        if not rules.allow_loopback:
            raise _refused("the address is of this machine, which the settings do not allow")
    elif _is_special(ip):
        raise _refused("the address is of a special network, which is never called")
    elif _is_private(ip) and not rules.allow_private:
        raise _refused("the address is of a private network, which the settings do not allow")


def _check_host(host: str, rules: Rules) -> bool:
    """Whether it is this machine, by its name or address; raises if it may not be called."""
    ip = _literal(host)
    if ip is not None:
        check_address(str(ip), rules)
        return _inner(ip).is_loopback
    if host == "localhost" or host.endswith(".localhost"):
        check_address("127.0.0.1", rules)
        return True
    # Resolvers take `127.1`, `0x7f000001` and `2130706433` for addresses; we take them for
    # attempts to hide one.
    if _NUMBER.fullmatch(host.rpartition(".")[2]) or not _NAME.fullmatch(host):
        raise _refused("the host is neither a name nor an address in its usual form")
    return False


def _literal(host: str) -> Ip | None:
    try:
        return ipaddress.ip_address(host) if "%" not in host else None
    except ValueError:
        return None


def _inner(ip: Ip) -> Ip:
    """The IPv4 address that the system calls when it is given this IPv6 one, if it does."""
    return ip if ip.version == 4 else ip.ipv4_mapped or ip


def _is_special(ip: Ip) -> bool:
    """Nobody's receiver: tunnels, metadata of clouds, link-local, multicast, reserved."""
    if ip in _NAT64:
        # The gateway calls the embedded address; only public ones may stand there (RFC 6052).
        inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return inner.is_loopback or _is_special(inner) or _is_private(inner)
    if ip.version == 6 and ip not in _GLOBAL_V6 and ip not in _UNIQUE_LOCAL:
        return True
    return any(ip in network for network in _NEVER)


def _is_private(ip: Ip) -> bool:
    return not ip.is_global or any(ip in network for network in _PRIVATE)


def _refused(sentence: str) -> BadWebhookUrl:
    return BadWebhookUrl(sentence, details={"field": "url"})
