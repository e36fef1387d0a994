"""The features that a broker may offer on a link, and how an offer is checked. Pure.

| feature | version | required parameters |
| --- | --- | --- |
| client_message_id_dedupe | 2 | mode; dedupe_retention_days ≥ 7 when scoped; request_fingerprint |
| concurrent_connection_policy | 1 | default_policy, if there |
| member_keypair_rotated_event | 1 | |
| key_epoch | 1 | max_concurrent_epochs ≥ 1 |
| max_payload | 1 | inline_bytes ≥ 1024, blob_bytes ≥ 1024 |

Both ends check an offer against this table. A missing feature closes with 4010, an invalid
parameter or unknown version with 4011, and a number below its minimum with 4012.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

UNAVAILABLE, PARAM_INVALID, BELOW_MINIMUM = 4010, 4011, 4012
NAMES = {
    UNAVAILABLE: "feature_unavailable",
    PARAM_INVALID: "feature_param_invalid",
    BELOW_MINIMUM: "feature_param_below_floor",
}
DEDUPE = "client_message_id_dedupe"
POLICY = "concurrent_connection_policy"
VERSIONS = {
    DEDUPE: 2,
    POLICY: 1,
    "member_keypair_rotated_event": 1,
    "key_epoch": 1,
    "max_payload": 1,
}
ALLOWED: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    DEDUPE: {"mode": ("retention_scoped", "permanent"), "request_fingerprint": (True,)},
    POLICY: {"default_policy": (None, "prefer_newest", "prefer_oldest", "allow_concurrent")},
}
MINIMA = {
    DEDUPE: {"dedupe_retention_days": 7},
    "key_epoch": {"max_concurrent_epochs": 1},
    "max_payload": {"inline_bytes": 1024, "blob_bytes": 1024},
}


class NegotiationProblem(NamedTuple):
    """A reason why a link is not opened or a feature is not used: close code, feature,
    parameter."""

    code: int
    feature: str
    param: str = ""

    @property
    def reason(self) -> str:
        named = f"{self.feature}.{self.param}" if self.param else self.feature
        return f"{NAMES[self.code]}: {named}"


def check_offer(name: str, params: Mapping[str, Any]) -> NegotiationProblem | None:
    """Return the first problem in a feature's offer, by the table above."""
    if not is_number(params.get("version")) or params["version"] != VERSIONS[name]:
        return NegotiationProblem(PARAM_INVALID, name, "version")
    for param, allowed in ALLOWED.get(name, {}).items():
        value = params.get(param)
        if value not in allowed or not isinstance(value, str | bool | None):  # 1 equals True
            return NegotiationProblem(PARAM_INVALID, name, param)
    if name == DEDUPE and params["mode"] == "permanent":
        return None
    for param, minimum in MINIMA.get(name, {}).items():
        value = params.get(param)
        if not is_number(value):
            return NegotiationProblem(PARAM_INVALID, name, param)
        if value < minimum:
            return NegotiationProblem(BELOW_MINIMUM, name, param)
    return None


def is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
