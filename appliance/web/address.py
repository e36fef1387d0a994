"""Which addresses the appliance may call for clients. Pure: names are not resolved here.

`check_url` checks a URL when it is registered. Before connecting, `check_address` has to check
every address that the name resolved to, and the connection has to use that address, because the
name may resolve to another one later.
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


# From IANA's special-purpose address registries; Python's tables differ by version.
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")  # all that is assigned for global use
_UNIQUE_LOCAL = ipaddress.ip_network("fc00::/7")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NEVER = _networks(
    "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4",
    "2001::/23",  # protocols, including Teredo tunnels
    "2002::/16",  # 6to4 tunnels
    # Cloud metadata services, which give out credentials, outside link-local networks.
    "100.100.100.200/32", "168.63.129.16/32", "fd00:42::42/128", "fd00:ec2::/32",
    "fd20:ce::254/128",
)  # fmt: skip
_PRIVATE = _networks(
    "10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16",
    "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "2001:db8::/32", "3fff::/20", "fc00::/7",
)  # fmt: skip


class AddressRules(Protocol):
    """Settings that allow more than public addresses."""

    @property
    def allow_loopback(self) -> bool: ...
    @property
    def allow_private(self) -> bool: ...


class Rules(AddressRules, Protocol):
    """Settings that allow more than https."""

    @property
    def allow_http(self) -> bool: ...


class BadWebhookUrl(Invalid):
    default_message = "the address is not allowed for webhooks"
    default_hint = "use https and a public name, or see [webhooks] in agentlip.toml"


def check_url(url: str, rules: Rules) -> None:
    """Raise BadWebhookUrl if the URL is not allowed. The message quotes no part of the URL, which
    may contain a secret."""
    if len(url) > URL_CHARACTERS_MAX:
        raise _refusal(f"the URL is longer than {URL_CHARACTERS_MAX} characters")
    if not _VISIBLE_ASCII.fullmatch(url) or "\\" in url:
        raise _refusal("the URL contains spaces, backslashes or non-ASCII characters")
    try:
        parts = urlsplit(url)
        port, host = parts.port, (parts.hostname or "").removesuffix(".")
    except ValueError:
        raise _refusal("this is not a valid URL") from None
    if parts.scheme not in ("https", "http"):
        raise _refusal("the URL must begin with https:// (or http://, where it is allowed)")
    if "@" in parts.netloc:
        raise _refusal("the URL must not contain credentials; receivers verify the signature")
    if parts.fragment or "#" in url:
        raise _refusal("the URL must not have a fragment")
    if not host or port == 0:
        raise _refusal("the URL has no host or an invalid port")
    near = _check_host(host, rules)
    if parts.scheme == "http" and not near and not rules.allow_http:
        raise _refusal("http:// is allowed only for receivers on this machine")


def check_address(address: str, rules: AddressRules) -> None:
    """Raise BadWebhookUrl for an address, from a URL or a resolved name, that is not allowed."""
    ip = ip_of(address)
    if ip is None:
        raise _refusal("this is not an IP address")
    if ip.is_loopback:
        if not rules.allow_loopback:
            raise _refusal("the address belongs to this machine; `allow_loopback` is off")
    elif _is_special(ip):
        raise _refusal("the address belongs to a special network, which is never allowed")
    elif _is_private(ip) and not rules.allow_private:
        raise _refusal("the address belongs to a private network; `allow_private` is off")


def _check_host(host: str, rules: Rules) -> bool:
    """Return whether the host is this machine, by name or address. Raises BadWebhookUrl."""
    ip = None if "%" in host else ip_of(host)
    if ip is not None:
        check_address(host, rules)
        return ip.is_loopback
    if host == "localhost" or host.endswith(".localhost"):
        check_address("127.0.0.1", rules)
        return True
    # Resolvers accept `127.1`, `0x7f000001` and `2130706433` as addresses, which are refused here,
    # because such forms hide an address.
    if _NUMBER.fullmatch(host.rpartition(".")[2]) or not _NAME.fullmatch(host):
        raise _refusal("the host is neither a valid name nor an address in the usual form")
    return False


def ip_of(text: str) -> Ip | None:
    """Return the address without its zone, and the IPv4 address that the system uses for an
    IPv4-mapped IPv6 address. None for other texts."""
    try:
        ip = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return ip if ip.version == 4 else ip.ipv4_mapped or ip


def _is_special(ip: Ip) -> bool:
    """Return whether the address is special: tunnel, cloud metadata, link-local, multicast or
    reserved."""
    if ip in _NAT64:
        # The gateway connects to the embedded address, which must be public (RFC 6052).
        inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return inner.is_loopback or _is_special(inner) or _is_private(inner)
    if ip.version == 6 and ip not in _GLOBAL_V6 and ip not in _UNIQUE_LOCAL:
        return True
    return any(ip in network for network in _NEVER)


def _is_private(ip: Ip) -> bool:
    return not ip.is_global or any(ip in network for network in _PRIVATE)


def _refusal(sentence: str) -> BadWebhookUrl:
    return BadWebhookUrl(sentence, details={"field": "url"})
