"""[identity]: the member key, and the policy for a changed machine."""

from typing import Literal

import msgspec

Mode = Literal["auto", "persistent", "ephemeral"]
Policy = Literal["refuse", "warn", "allow"]


class IdentitySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[identity]: the member key of this appliance; docs/reference/identity.md."""

    mode: Mode = "auto"  # auto: ephemeral in CI and Kubernetes, persistent elsewhere
    clone_policy: Policy = "refuse"  # reaction to a key that was made on another machine
