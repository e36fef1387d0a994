"""Pure: what the broker offers on a link, and whether that is what the receiver requires.

`key_epoch`: a member that rotated its key is still reached under its former keys; at most
`max_concurrent_epochs` of its keys, with the one in force, lead to it.
"""

from collections.abc import Sequence
from typing import Any

from appliance.broker.directory import KEY_EPOCHS_MAX, MeshRow
from appliance.mesh import frames
from appliance.mesh.negotiation import (
    BELOW_FLOOR,
    PARAM_INVALID,
    UNAVAILABLE,
    NegotiationProblem,
    check_offer,
    is_number,
)

Supported = dict[str, dict[str, dict[str, Any]]]


def offered(mesh: MeshRow, inline_bytes: int) -> Supported:
    """What this mesh's links support. Nothing larger than inline is carried: no blobs."""
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
            "params": {"version": 1, "inline_bytes": inline_bytes, "blob_bytes": inline_bytes}
        },
    }


def judge(
    require: Sequence[str | frames.Feature], supported: Supported
) -> tuple[list[str], NegotiationProblem | None]:
    """(missing features, the first thing that stands against opening the link)."""
    wanted = [one if isinstance(one, frames.Feature) else frames.Feature(one) for one in require]
    missing = [one.name for one in wanted if one.name not in supported]
    if missing:
        return missing, NegotiationProblem(UNAVAILABLE, missing[0])
    for one in wanted:
        params = supported[one.name]["params"]
        problem = check_offer(one.name, params) or check_wish(one, params)
        if problem is not None:
            return [], problem
    return [], None


def check_wish(wanted: frames.Feature, params: dict[str, Any]) -> NegotiationProblem | None:
    """Numbers a receiver asks for are minima; everything else has to be the same."""
    for param, wish in wanted.params.items():
        have = params.get(param)
        number = is_number(wish) and param != "version"
        if number and param == "dedupe_retention_days" and params.get("mode") == "permanent":
            continue
        if number and isinstance(have, int):
            if have < wish:
                return NegotiationProblem(BELOW_FLOOR, wanted.name, param)
        elif have != wish:
            return NegotiationProblem(PARAM_INVALID, wanted.name, param)
    return None
