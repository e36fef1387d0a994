"""Defines [auth]: token settings."""

import msgspec


class AuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[auth]: tokens besides the workspace's own."""

    scrape_token_file: str | None = None  # file with a token that can only read /metrics
