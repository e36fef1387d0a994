"""[auth]: settings of tokens."""

import msgspec


class AuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[auth]: tokens besides the workspace's own."""

    scrape_token_file: str | None = None  # file with a token that can only read /metrics
    grace_seconds: float = 300.0  # time a rotated secret stays valid; hub spec §6.6
    forget_days: float = 90.0  # days to keep revoked and expired tokens in the list
