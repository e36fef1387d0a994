"""Which features a link must have, and what is held against an offer. Pure.

| feature | version | of us | what its parameters must be |
| --- | --- | --- | --- |
| client_message_id_dedupe | 2 | required | mode; dedupe_retention_days ≥ 7 when scoped; request_fingerprint true |
| concurrent_connection_policy | 1 | optional | default_policy, if there |
| member_keypair_rotated_event | 1 | optional | |
| key_epoch | 1 | optional | max_concurrent_epochs ≥ 1 |
| max_payload | 1 | optional | inline_bytes ≥ 1024, blob_bytes ≥ 1024 |

Required and absent: 4010. Present and not as it must be, or of an unknown version: 4011. Below
a floor: 4012. What is wrong with an optional feature costs that feature only.
"""  # noqa: E501

from collections.abc import Mapping
from typing import Any, NamedTuple

UNAVAILABLE, INVALID, BELOW_FLOOR = 4010, 4011, 4012
NAMES = {
    UNAVAILABLE: "feature_unavailable",
    INVALID: "feature_param_invalid",
    BELOW_FLOOR: "feature_param_below_floor",
}
VERSIONS = {
    "client_message_id_dedupe": 2,
    "concurrent_connection_policy": 1,
    "member_keypair_rotated_event": 1,
    "key_epoch": 1,
    "max_payload": 1,
}
REQUIRED = ("client_message_id_dedupe",)
OPTIONAL = tuple(name for name in VERSIONS if name not in REQUIRED)
MODES = ("retention_scoped", "permanent")
POLICIES = ("prefer_newest", "prefer_oldest", "allow_concurrent")
RETENTION_DAYS_MIN = 7
_FLOORS = {
    "key_epoch": {"max_concurrent_epochs": 1},
    "max_payload": {"inline_bytes": 1024, "blob_bytes": 1024},
}


class Problem(NamedTuple):
    code: int
    feature: str
    param: str = ""

    @property
    def reason(self) -> str:
        named = f"{self.feature}.{self.param}" if self.param else self.feature
        return f"{NAMES[self.code]}: {named}"


class Agreed(NamedTuple):
    """What holds on this link, or why there is none; `dropped` are optional features."""

    features: dict[str, dict[str, Any]]
    problem: Problem | None
    dropped: list[Problem]

    @property
    def retention_days(self) -> int | None:
        """For how long the broker knows ids; None: for ever."""
        params = self.features.get("client_message_id_dedupe", {})
        return None if params.get("mode") == "permanent" else params.get("dedupe_retention_days")


def agree(supported: Any, missing: Any) -> Agreed:
    """Judge the broker's answer; nothing of it is believed to have any shape."""
    if isinstance(missing, list):
        absent = [name for name in missing if name in REQUIRED]
        if absent:
            return Agreed({}, Problem(UNAVAILABLE, absent[0]), [])
    offers = supported if isinstance(supported, Mapping) else {}
    features: dict[str, dict[str, Any]] = {}
    dropped: list[Problem] = []
    for name in VERSIONS:
        if name not in offers:
            if name in REQUIRED:
                return Agreed({}, Problem(UNAVAILABLE, name), [])
            continue
        offer = offers[name]
        params = offer.get("params") if isinstance(offer, Mapping) else None
        if not isinstance(params, Mapping):
            problem: Problem | None = Problem(INVALID, name, "params")
        else:
            problem = check(name, params)
        if problem is None and params is not None:
            features[name] = dict(params)
        elif problem is not None and name in REQUIRED:
            return Agreed({}, problem, [])
        elif problem is not None:
            dropped.append(problem)
    return Agreed(features, None, dropped)


def check(name: str, params: Mapping[str, Any]) -> Problem | None:
    """The table above, for one feature."""
    if not _is_number(params.get("version")) or params["version"] != VERSIONS[name]:
        return Problem(INVALID, name, "version")
    if name == "client_message_id_dedupe":
        return _check_dedupe(name, params)
    if name == "concurrent_connection_policy":
        if params.get("default_policy") not in (None, *POLICIES):
            return Problem(INVALID, name, "default_policy")
        return None
    return _check_floors(name, params, _FLOORS.get(name, {}))


def _check_dedupe(name: str, params: Mapping[str, Any]) -> Problem | None:
    if params.get("mode") not in MODES:
        return Problem(INVALID, name, "mode")
    if params.get("request_fingerprint") is not True:
        return Problem(INVALID, name, "request_fingerprint")
    if params["mode"] == "permanent":
        return None
    return _check_floors(name, params, {"dedupe_retention_days": RETENTION_DAYS_MIN})


def _check_floors(
    name: str, params: Mapping[str, Any], floors: Mapping[str, int]
) -> Problem | None:
    for param, floor in floors.items():
        value = params.get(param)
        if not _is_number(value):
            return Problem(INVALID, name, param)
        if value is not None and value < floor:
            return Problem(BELOW_FLOOR, name, param)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
