"""Pure: what the broker offers on a link, and whether that is what the receiver requires.

| feature | version | required parameters |
| --- | --- | --- |
| client_message_id_dedupe | 2 | mode; dedupe_retention_days ≥ 7 when scoped; request_fingerprint |
| concurrent_connection_policy | 1 | none |
| member_keypair_rotated_event | 1 | none |
| key_epoch | 1 | max_concurrent_epochs ≥ 1 |
| max_payload | 1 | inline_bytes ≥ 1024, blob_bytes ≥ 1024 |

Absent: 4010. Present but not as required: 4011. Below a floor: 4012.

`key_epoch`: a member that rotated its key is still reached under its former keys; at most
`max_concurrent_epochs` of its keys, with the one in force, lead to it.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from appliance.broker import wire
from appliance.broker.model import KEY_EPOCHS_MAX, MeshRow

UNAVAILABLE, PARAM_INVALID, BELOW_FLOOR = 4010, 4011, 4012
NAMES = {
    UNAVAILABLE: "feature_unavailable",
    PARAM_INVALID: "feature_param_invalid",
    BELOW_FLOOR: "feature_param_below_floor",
}
VERSIONS = {
    "client_message_id_dedupe": 2,
    "concurrent_connection_policy": 1,
    "member_keypair_rotated_event": 1,
    "key_epoch": 1,
    "max_payload": 1,
}
FLOORS = {
    "client_message_id_dedupe": {"dedupe_retention_days": wire.RETENTION_DAYS_MIN},
    "key_epoch": {"max_concurrent_epochs": 1},
    "max_payload": {"inline_bytes": 1024, "blob_bytes": 1024},
}
MODES = ("retention_scoped", "permanent")
Supported = dict[str, dict[str, dict[str, Any]]]


class Problem(Struct, frozen=True):
    """Why the link is not opened: close code, feature, parameter."""

    code: int
    feature: str
    param: str = ""

    @property
    def reason(self) -> str:
        named = f"{self.feature}.{self.param}" if self.param else self.feature
        return f"{NAMES[self.code]}: {named}"


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
    require: Sequence[str | wire.Feature], supported: Supported
) -> tuple[list[str], Problem | None]:
    """(missing features, the first thing that stands against opening the link)."""
    wanted = [one if isinstance(one, wire.Feature) else wire.Feature(one) for one in require]
    missing = [one.name for one in wanted if one.name not in supported]
    if missing:
        return missing, Problem(UNAVAILABLE, missing[0])
    for one in wanted:
        params = supported[one.name]["params"]
        problem = check_offer(one.name, params) or check_wish(one, params)
        if problem is not None:
            return [], problem
    return [], None


def check_offer(name: str, params: dict[str, Any]) -> Problem | None:
    """What both sides hold against an offer: the table above. The receiver does the same."""
    if params.get("version") != VERSIONS[name]:
        return Problem(PARAM_INVALID, name, "version")
    if name == "client_message_id_dedupe":
        if params.get("mode") not in MODES:
            return Problem(PARAM_INVALID, name, "mode")
        if params.get("request_fingerprint") is not True:
            return Problem(PARAM_INVALID, name, "request_fingerprint")
        if params["mode"] == "permanent":
            return None
    for param, floor in FLOORS.get(name, {}).items():
        value = params.get(param)
        if not isinstance(value, int) or isinstance(value, bool):
            return Problem(PARAM_INVALID, name, param)
        if value < floor:
            return Problem(BELOW_FLOOR, name, param)
    return None


def check_wish(wanted: wire.Feature, params: dict[str, Any]) -> Problem | None:
    """Numbers a receiver asks for are minima; everything else has to be the same."""
    for param, wish in wanted.params.items():
        have = params.get(param)
        number = isinstance(wish, int) and not isinstance(wish, bool) and param != "version"
        if number and param == "dedupe_retention_days" and params.get("mode") == "permanent":
            continue
        if number and isinstance(have, int):
            if have < wish:
                return Problem(BELOW_FLOOR, wanted.name, param)
        elif have != wish:
            return Problem(PARAM_INVALID, wanted.name, param)
    return None
