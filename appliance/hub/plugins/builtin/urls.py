"""Extracts a message's web addresses as attachments on its topic (extractor).

config:
    allow_domains  only these hosts and their subdomains (default: all)
    block_domains  never these hosts and their subdomains, even if allowed
    most           addresses in one message at most (default 50)

Addresses that contain credentials are skipped. Nothing is fetched. Uses only the standard library.
"""

import hashlib
import re
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

VERSION = "1"
LENGTH_MAX = 2048
KEY_LENGTH_MAX = 500
DEFAULT_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"https?://[^\s<>\"'`\x00-\x20\x7f-\x9f\\]+", re.IGNORECASE)
_PAIRS = {")": "(", "]": "[", "}": "{"}


def extract(message: dict[str, Any], config: dict[str, Any]) -> list[dict[str, Any]]:
    allow = _domains(config, "allow_domains")
    block = _domains(config, "block_domains")
    attachments_max = int(config.get("most", 50))
    attachments: dict[str, dict[str, Any]] = {}
    for match in _URL.finditer(message["content_raw"]):
        url = trim(match.group())
        parts = _split(url)
        if parts is None or len(attachments) >= attachments_max:
            continue
        host = (parts.hostname or "").rstrip(".")
        if (allow and not _is_below(host, allow)) or _is_below(host, block):
            continue
        key = dedupe_key(parts)
        attachments.setdefault(key, {"kind": "url", "value_json": {"url": url}, "dedupe_key": key})
    return list(attachments.values())


def trim(url: str) -> str:
    """Return an address without the sentence's trailing punctuation; a closing bracket stays if
    it was opened in the address."""
    end = len(url)
    unopened = {last: url.count(last) - url.count(first) for last, first in _PAIRS.items()}
    while end and (url[end - 1] in ".,;:!?*_~|" or unopened.get(url[end - 1], 0) > 0):
        end -= 1
        if url[end] in unopened:
            unopened[url[end]] -= 1
    return url[:end]


def dedupe_key(parts: SplitResult) -> str:
    """Return the same key for addresses that differ in the host's case or in the default port."""
    host, port = parts.hostname or "", parts.port
    if ":" in host:
        host = f"[{host}]"
    netloc = host if port in (None, DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"
    normal = urlunsplit((parts.scheme, netloc, parts.path or "/", parts.query, parts.fragment))
    if len(normal) + 4 > KEY_LENGTH_MAX:
        return "url:sha256:" + hashlib.sha256(normal.encode("utf-8", "replace")).hexdigest()
    return "url:" + normal


def _split(url: str) -> SplitResult | None:
    """Return the parts; None if it is not an address, too long, or contains credentials."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    if len(url) > LENGTH_MAX or not parts.hostname or "@" in parts.netloc:
        return None
    return parts


def _domains(config: dict[str, Any], name: str) -> list[str]:
    given = config.get(name, [])
    if not isinstance(given, list) or not all(isinstance(domain, str) for domain in given):
        raise ValueError(f"{name} must be a list of names")
    return [domain.lower().strip(".") for domain in given]


def _is_below(host: str, domains: list[str]) -> bool:
    return any(host == domain or host.endswith("." + domain) for domain in domains)
