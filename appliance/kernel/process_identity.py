"""Identifies this process, so that clients can detect a restart."""

import msgspec


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process's identity, chosen at its start; `epoch` and `epochs` belong to the workspace.

    epochs  (first event id, epoch) for all its epochs, if a backup was ever restored
    """

    instance_id: str
    epoch: str
    started_ms: int
    pid: int
    version: str
    features: tuple[str, ...]
    epochs: tuple[tuple[int, str], ...] = ()
    read_only: bool = False
