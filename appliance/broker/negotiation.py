"""Pure: the features that the broker offers on a connection, and whether the member's requirements
are met.

`key_epoch`: a member with a rotated key still receives messages to former keys, up to
`max_concurrent_epochs` keys including the current one.
"""

from collections.abc import Sequence
from typing import Any

from appliance.broker.directory import KEY_EPOCHS_MAX
from appliance.broker.rows import MeshRow
from appliance.broker.wire import INLINE_BYTES_MAX
from appliance.mesh import frames
from appliance.mesh.negotiation import (
    BELOW_MINIMUM,
    PARAM_INVALID,
    UNAVAILABLE,
    NegotiationProblem,
    check_offer,
    is_number,
)

Supported = dict[str, dict[str, dict[str, Any]]]


def offer(mesh: MeshRow) -> Supported:
    """Return the features for this mesh's connections. There are no blobs: the inline limit
    applies."""
    dedupe: dict[str, Any] = {"version": 2, "mode": mesh.dedupe_mode, "request_fingerprint": True}
    if mesh.dedupe_mode == "retention_scoped":
        dedupe["dedupe_retention_days"] = mesh.dedupe_retention_days
    dedupe["tombstone_history_pruned_window_days"] = mesh.dedupe_retention_days
    return {
        "client_message_id_dedupe": {"params": dedupe},
        "concurrent_connection_policy": {
            "params": {"version": 1, "default_policy": mesh.concurrency}
        },
        "member_keypair_rotated_event": {"params": {"version": 1}},
        "key_epoch": {"params": {"version": 1, "max_concurrent_epochs": KEY_EPOCHS_MAX}},
        "max_payload": {
            "params": {
                "version": 1,
                "inline_bytes": INLINE_BYTES_MAX,
                "blob_bytes": INLINE_BYTES_MAX,
            }
        },
    }


def check_requirements(
    require: Sequence[str | frames.Feature], supported: Supported
) -> tuple[list[str], NegotiationProblem | None]:
    """Return (missing features, the first problem that prevents the connection)."""
    features = [
        feature if isinstance(feature, frames.Feature) else frames.Feature(feature)
        for feature in require
    ]
    missing = [feature.name for feature in features if feature.name not in supported]
    if missing:
        return missing, NegotiationProblem(UNAVAILABLE, missing[0])
    for feature in features:
        params = supported[feature.name]["params"]
        problem = check_offer(feature.name, params) or check_requirement(feature, params)
        if problem is not None:
            return [], problem
    return [], None


def check_requirement(
    features: frames.Feature, params: dict[str, Any]
) -> NegotiationProblem | None:
    """Check a requirement. Required numbers are minima; all other values must be equal."""
    for param, required in features.params.items():
        offered_value = params.get(param)
        number = is_number(required) and param != "version"
        if number and param == "dedupe_retention_days" and params.get("mode") == "permanent":
            continue
        if number and isinstance(offered_value, int):
            if offered_value < required:
                return NegotiationProblem(BELOW_MINIMUM, features.name, param)
        elif offered_value != required:
            return NegotiationProblem(PARAM_INVALID, features.name, param)
    return None
