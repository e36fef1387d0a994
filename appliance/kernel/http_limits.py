"""Defines limits for requests to another server, and responses."""

from collections.abc import Mapping

from msgspec import Struct


class HttpLimits(Struct, frozen=True):
    connect_seconds: float
    reply_seconds: float  # from the request to the response's last byte
    reply_bytes_max: int
    idle_max: int = 1  # idle connections that are kept, at least 1


class HttpResponse(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # case doesn't matter
    body: bytes
