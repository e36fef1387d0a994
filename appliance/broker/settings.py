"""[broker]: what the receiver of sends accepts, how it delivers, and how long it keeps."""

from typing import Literal

import msgspec

DAY_MS = 86_400_000


class BrokerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[broker]: limits of accepting, delivering and keeping messages of meshes."""

    writer: Literal["process", "thread"] = "thread"  # of its file; a process is quicker, and larger
    inline_bytes_max: int = 65_536  # one message's text; told to senders as max_payload
    meta_bytes_max: int = 16_384  # of one message, as canonical JSON
    mentions_max: int = 50  # members named in meta.mentions
    rate_per_second: int = 2_000  # messages accepted of one mesh; bursts of a second; 0: no limit
    signature_skew_seconds: float = 300.0  # a signature's time may be off by so much
    signature_v1: bool = False  # also accept signatures of version 1, which can be replayed
    nonces_max: int = 200_000  # remembered signed requests, against replays; about 150 B each
    nonces_member_max: int = 100_000  # remembered signed requests of a member: 333/s for 300 s
    meshes_max: int = 1_000  # kept in memory, with their members
    members_max: int = 10_000  # of all meshes together
    places_max: int = 10_000  # topics and queues of one mesh
    subscribers_max: int = 2_000  # of one place: a message makes a row for each
    links_max: int = 1_000  # receivers connected, in this process too
    window_max: int = 256  # deliveries of one receiver that wait for its ack
    lease_seconds: float = 30.0  # without an ack for so long, a delivery is made again
    sweep_seconds: float = 15.0  # how often expired leases are looked for
    deliver_seconds: float = 1.0  # longest pause between two looks for work
    claim_max: int = 500  # deliveries claimed in one transaction
    retry_seconds_max: float = 60.0  # longest pause before a delivery is tried again
    webhook_concurrency_max: int = 8  # calls of webhooks at the same time, in all
    webhook_each_max: int = 2  # calls of one webhook at the same time
    webhook_retry_after_seconds_max: float = 3_600.0  # longest pause that a receiver may ask for
    webhook_disable_after_days: float = 5.0  # without a delivery; 0: never
    webhook_secret_grace_hours: float = 24.0  # a replaced secret signs as well for so long
    fanout_seconds_max: float = 300.0  # a delivery row older than that needs its dedupe row
    retention_hours: float = 24.0  # between two sweeps of what has expired
    sweep_rows_max: int = 500  # messages or ids removed in one transaction
    sweep_rounds_max: int = 1_000  # transactions of one sweep
    page_max: int = 500  # rows in one reply; a larger limit is clamped
    orphan_rows_max: int = 1_000  # orphans told by one look

    @property
    def wait_ms_max(self) -> int:
        """No delivery is paused or leased for longer."""
        longest = max(
            self.retry_seconds_max, self.webhook_retry_after_seconds_max, self.lease_seconds
        )
        return int(2000 * longest)
