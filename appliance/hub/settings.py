"""[hub]: limits of the message hub."""

import msgspec


class HubSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    page_max: int = 1000  # rows in one response; a larger `limit` is clamped
    replay_batch_max: int = 1000  # events read from the log in one query (hub spec §0.1.2)
    replay_bytes_max: int = 512 * 1024  # bytes of a replay sent before other clients get a turn
    wait_seconds_max: float = 60.0  # longest long poll, in seconds; a longer `wait` is clamped
    max_retopic_batch: int = 1000  # messages moved by one request; 10,000 block writes up to 1 s
    waiting_max: int = 500  # long polls and SSE streams of callers with a token; more get a 503
    idempotency_hours: float = 48.0  # how long an idempotency key is remembered
    sweep_rows_max: int = 5000  # expired idempotency keys deleted in one round
    index_batch_max: int = 200  # messages indexed for search in one commit; 200 take about 2 ms
    index_seconds: float = 0.1  # seconds between index updates while messages arrive
    pipeline_max: int = 256  # requests from one WebSocket committed together
    live_bytes_max: int = 32 * 1024 * 1024  # bytes of events queued for slow listeners
    sse_heartbeat_seconds: float = 15.0  # SSE comments keep proxies from closing idle streams
