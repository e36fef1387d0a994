"""Metrics of the member key."""

from appliance.kernel.metrics import counter

clones = counter(
    "identity_clone_suspected_total", "Signs that the member key is used twice", ("sign",),
    zeros=("fingerprint", "replaced", "refused"),
)  # fmt: skip

rotations = counter("identity_rotations_total", "Member key rotations by outcome", ("outcome",))
"""outcome: done, unfinished"""

forced_out = counter(
    "identity_archive_force_expired_total",
    "Archived keys removed before their grace period ended",
)
