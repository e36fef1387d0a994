"""Which settings of the outbox can be taken over while it runs. Pure.

The rest belongs to objects that live as long as the process: connections, threads, loops.
"""

import msgspec

from appliance.outbox.settings import OutboxSettings

NEED_RESTART = frozenset(
    {
        "enabled", "brokers", "writer", "concurrency_max", "poll_seconds", "connect_seconds",
        "reply_seconds", "reply_bytes_max", "breaker_failures", "check_bytes_max",
    }
)  # fmt: skip


def compare(
    running: OutboxSettings, read: OutboxSettings
) -> tuple[OutboxSettings, list[str], list[str]]:
    """The settings to go on with, what changes in them, and what changes with a restart only."""
    different = [
        name
        for name in OutboxSettings.__struct_fields__
        if getattr(running, name) != getattr(read, name)
    ]
    changed = [name for name in different if name not in NEED_RESTART]
    values = {name: getattr(read, name) for name in changed}
    after_restart = [name for name in different if name in NEED_RESTART]
    return msgspec.structs.replace(running, **values), changed, after_restart
