"""What the identity counts."""

from appliance.kernel.metrics import counter

clones = counter("identity_clone_suspected_total", "Signs that this key lives twice", ("sign",))
"""sign: fingerprint, replaced, refused"""

rotations = counter("identity_rotations_total", "Rotations of the member key", ("outcome",))
"""outcome: done, unfinished"""

forced_out = counter(
    "identity_archive_force_expired_total", "Archived keys that gave way before their time"
)
