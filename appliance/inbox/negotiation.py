"""Evaluates a broker's offer against the features that a link requires. Pure.

If a required feature is missing or invalid, there is no link. An invalid optional feature is not
used (`mesh/negotiation.py` has the table).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from appliance.mesh.negotiation import (
    DEDUPE,
    PARAM_INVALID,
    UNAVAILABLE,
    VERSIONS,
    NegotiationProblem,
    check_offer,
)

REQUIRED = (DEDUPE,)
OPTIONAL = tuple(name for name in VERSIONS if name not in REQUIRED)


class Agreed(NamedTuple):
    """A link's features, or why there is none. `dropped`: invalid optional features."""

    features: dict[str, dict[str, Any]]
    problem: NegotiationProblem | None
    dropped: list[NegotiationProblem]

    @property
    def retention_days(self) -> int | None:
        """Return for how many days the broker keeps ids; None: forever."""
        params = self.features.get(DEDUPE, {})
        return None if params.get("mode") == "permanent" else params.get("dedupe_retention_days")


def agree(supported: Any, missing: Any) -> Agreed:
    """Evaluate the broker's reply, which may have any shape."""
    offers = supported if isinstance(supported, Mapping) else {}
    absent = missing if isinstance(missing, list) else []
    agreed = Agreed({}, None, [])
    for name in VERSIONS:
        problem = _check(name, offers, absent)
        if problem is None:
            agreed.features[name] = dict(offers[name]["params"])
        elif name in REQUIRED:
            return Agreed({}, problem, [])
        elif problem.code != UNAVAILABLE:
            agreed.dropped.append(problem)
    return agreed


def _check(name: str, offers: Mapping[str, Any], absent: list[Any]) -> NegotiationProblem | None:
    if name not in offers or name in absent:
        return NegotiationProblem(UNAVAILABLE, name)
    offer = offers[name]
    params = offer.get("params") if isinstance(offer, Mapping) else None
    if not isinstance(params, Mapping):
        return NegotiationProblem(PARAM_INVALID, name, "params")
    return check_offer(name, params)
