"""[hub]: limits of the message hub."""

import msgspec


class HubSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    page_max: int = 1000  # rows in one reply; a larger limit is clamped
    replay_batch_max: int = 1000  # events read from the log at once (hub spec §0.1.2)
    replay_bytes_max: int = 512 * 1024  # bytes written to a socket between two looks around
    wait_seconds_max: float = 60.0  # longest long poll; a longer `wait` is clamped
    max_retopic_batch: int = 10_000  # messages moved at once; others wait, some 250 ms
    waiting_max: int = 500  # long polls and SSE streams at once
    idempotency_hours: float = 48.0  # how long a key is remembered
    sweep_rows_max: int = 5000  # keys forgotten in one round
    index_rows: int = 200  # messages added to the search index in one commit, about 2 ms
    index_seconds: float = 0.1  # how often the search index catches up while messages come in
    pipeline_max: int = 256  # requests of one socket written together
    live_bytes_max: int = 32 * 1024 * 1024  # bytes of events kept for slow listeners
    sse_heartbeat_seconds: float = 15.0  # a comment line keeps proxies from hanging up
