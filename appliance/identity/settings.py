"""[identity]: the member key, and the policy for a changed machine."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Mode = Literal["auto", "persistent", "ephemeral"]
Policy = Literal["refuse", "warn", "allow"]

ARCHIVE_DAYS_MAX = 30
ArchiveMax = Annotated[int, Meta(ge=1, le=64)]
GraceDays = Annotated[float, Meta(gt=0, le=ARCHIVE_DAYS_MAX)]


class IdentitySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[identity]: the member key of this appliance; docs/reference/identity.md."""

    mode: Mode = "auto"  # auto: ephemeral in CI and Kubernetes, persistent elsewhere
    clone_policy: Policy = "refuse"  # what to do if the key was made on another machine
    host_id: str | None = None  # replaces the machine's own id in the fingerprint
    archive_days: GraceDays = 7.0  # days to keep a rotated-out key for decryption
    archive_max: ArchiveMax = 8  # rotated-out keys to keep; the oldest is removed first
