"""Who this process is, for clients that want to know whether it is still the same."""

import msgspec


class ProcessIdentity(msgspec.Struct, frozen=True):
    """Who this process is: drawn at its start, but for the epoch, which is the workspace's."""

    instance_id: str
    epoch: str
    started_ms: int
    pid: int
    version: str
    features: tuple[str, ...]
