"""[broker]: settings for accepting, delivering and keeping messages of meshes."""

import msgspec


class BrokerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[broker]: accepting, delivering and keeping messages of meshes."""

    rate_per_second: int = 2_000  # messages accepted per mesh and second; 0: no limit
