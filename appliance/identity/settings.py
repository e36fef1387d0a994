"""[identity]: which key speaks for this appliance, and what a change of machine means."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Mode = Literal["auto", "persistent", "ephemeral"]
Policy = Literal["refuse", "warn", "allow"]

ARCHIVE_DAYS_MAX = 30
GraceDays = Annotated[float, Meta(gt=0, le=ARCHIVE_DAYS_MAX)]


class IdentitySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[identity]: the member key of this appliance; docs/identity.md."""

    mode: Mode = "auto"  # auto: ephemeral in CI and Kubernetes, persistent elsewhere
    clone_policy: Policy = "refuse"  # when the key was made on another machine
    host_id: str | None = None  # in place of the machine's own id, for the fingerprint
    archive_days: GraceDays = 7.0  # a rotated-out key is kept
    archive_max: Annotated[int, Meta(ge=1, le=64)] = 8  # keys kept; the oldest gives way
