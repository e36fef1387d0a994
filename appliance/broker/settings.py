"""Defines [broker]: accepting, delivering and keeping mesh messages."""

import msgspec


class BrokerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[broker]: accepting, delivering and keeping mesh messages."""

    rate_per_second: int = 2_000  # messages accepted per mesh and second; 0: no limit
