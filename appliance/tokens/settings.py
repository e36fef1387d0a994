"""Settings of credentials."""

import msgspec


class AuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[auth]: credentials beside the workspace's own token."""

    scrape_token_file: str | None = None  # a file whose text may read /metrics, and no more
    grace_seconds: float = 300.0  # for which a rotated secret still opens; hub spec §6.6
    last_used_seconds: float = 60.0  # how coarsely the last use of a token is written down
    forget_days: float = 90.0  # after which revoked and expired tokens leave the list
