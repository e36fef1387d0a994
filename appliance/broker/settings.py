"""[broker]: settings for accepting, delivering and keeping messages of meshes."""

import msgspec


class BrokerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[broker]: accepting, delivering and keeping messages of meshes."""

    inline_bytes_max: int = 65_536  # size of one message's text; sent to members as max_payload
    rate_per_second: int = 2_000  # messages accepted per mesh and second; 0: no limit
    links_max: int = 1_000  # connections of members, including those in this process
    webhook_disable_after_days: float = 5.0  # disable a webhook that fails for this long; 0: never
    log_days: float = 7.0  # days to keep the log of messages and deliveries; 0: no log
