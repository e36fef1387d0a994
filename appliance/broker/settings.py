"""[broker]: settings for accepting, delivering and keeping messages of meshes."""

import msgspec


class BrokerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[broker]: accepting, delivering and keeping messages of meshes."""

    inline_bytes_max: int = 65_536  # size of one message's text; sent to members as max_payload
    meta_bytes_max: int = 16_384  # size of one message's meta as canonical JSON
    mentions_max: int = 50  # members named in one message's meta.mentions
    rate_per_second: int = 2_000  # messages accepted per mesh and second; 0: no limit
    signature_skew_seconds: float = 300.0  # how far a signature's timestamp may be off
    nonces_max: int = 200_000  # signed requests remembered against replays, about 150 B each
    nonces_member_max: int = 100_000  # signed requests remembered per member: 333/s for 300 s
    meshes_max: int = 1_000  # meshes, which are kept in memory with their members
    members_max: int = 10_000  # members of all meshes together
    destinations_max: int = 10_000  # topics, queues or webhooks of one mesh
    subscribers_max: int = 2_000  # subscribers of one topic or queue; a row each per message
    links_max: int = 1_000  # connections of members, including those in this process
    window_max: int = 256  # unacked deliveries of one connection
    lease_seconds: float = 30.0  # a delivery that is not acked for this long is made again
    sweep_seconds: float = 15.0  # time between two checks for expired leases
    deliver_seconds: float = 1.0  # longest time between two checks for ready deliveries
    claim_max: int = 500  # deliveries claimed in one transaction
    retry_seconds_max: float = 60.0  # longest delay before a failed delivery is repeated
    webhook_concurrency_max: int = 8  # concurrent calls of webhooks in total
    webhook_each_max: int = 2  # concurrent calls of one webhook
    webhook_retry_after_seconds_max: float = 3_600.0  # longest Retry-After accepted from a webhook
    webhook_disable_after_days: float = 5.0  # disable a webhook that fails for this long; 0: never
    webhook_secret_grace_hours: float = 24.0  # how long a replaced webhook secret still signs
    fanout_seconds_max: float = 300.0  # age below which the orphan check ignores delivery rows
    retention_sweep_hours: float = 24.0  # time between two deletions of expired messages and ids
    sweep_rows_max: int = 500  # messages or ids deleted in one transaction
    sweep_rounds_max: int = 1_000  # transactions of one deletion of expired rows
    log_days: float = 7.0  # days to keep the log of messages and deliveries; 0: no log
    page_max: int = 500  # rows in one reply; a larger limit is clamped
    orphan_rows_max: int = 1_000  # orphans listed by one orphan check

    @property
    def wait_ms_max(self) -> int:
        """No delivery is delayed or leased for longer than this."""
        longest = max(
            self.retry_seconds_max, self.webhook_retry_after_seconds_max, self.lease_seconds
        )
        return int(2000 * longest)
