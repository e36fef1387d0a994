"""Which outbox settings take effect on a reload. Pure.

The others belong to objects that live as long as the process: connections, threads, loops.
"""

import msgspec

from appliance.outbox.settings import OutboxSettings

NEED_RESTART = frozenset({"brokers"})


def compare(
    running: OutboxSettings, read: OutboxSettings
) -> tuple[OutboxSettings, list[str], list[str]]:
    """Return the new settings, the names that changed, and the names that need a restart."""
    different = [
        name
        for name in OutboxSettings.__struct_fields__
        if getattr(running, name) != getattr(read, name)
    ]
    changed = [name for name in different if name not in NEED_RESTART]
    after_restart = [name for name in different if name in NEED_RESTART]
    settings = msgspec.structs.replace(running, **{name: getattr(read, name) for name in changed})
    return settings, changed, after_restart
