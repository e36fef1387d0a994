"""[broker]: settings for accepting, delivering and keeping messages of meshes."""

import msgspec


class BrokerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[broker]: accepting, delivering and keeping messages of meshes."""

    inline_bytes_max: int = 65_536  # size of one message's text; sent to members as max_payload
    rate_per_second: int = 2_000  # messages accepted per mesh and second; 0: no limit
    meshes_max: int = 1_000  # meshes, which are kept in memory with their members
    members_max: int = 10_000  # members of all meshes together
    destinations_max: int = 10_000  # topics, queues or webhooks of one mesh
    subscribers_max: int = 2_000  # subscribers of one topic or queue; a row each per message
    links_max: int = 1_000  # connections of members, including those in this process
    lease_seconds: float = 30.0  # a delivery that is not acked for this long is made again
    webhook_disable_after_days: float = 5.0  # disable a webhook that fails for this long; 0: never
    webhook_secret_grace_hours: float = 24.0  # how long a replaced webhook secret still signs
    log_days: float = 7.0  # days to keep the log of messages and deliveries; 0: no log
