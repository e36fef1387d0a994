"""Identifies this process, so that clients can detect a restart."""

import msgspec


class ProcessIdentity(msgspec.Struct, frozen=True):
    """Chosen at the start of the process, except `epoch`, which belongs to the workspace."""

    instance_id: str
    epoch: str
    started_ms: int
    pid: int
    version: str
    features: tuple[str, ...]
