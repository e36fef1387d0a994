"""Decides which destinations are delivered in order, and how route names encode that. Pure.

A mesh's ordered sends have their own route, which is claimed one destination at a time. The mesh's
second route is claimed without checking for order.
"""

from collections.abc import Sequence

from appliance.kernel.config import BadSettings
from appliance.outbox import destination
from appliance.outbox.settings import OrderedDestination

_SUFFIX = " in order"

OrderedDestinations = frozenset[tuple[str | None, str | None, str | None]]


def parse(wanted: Sequence[OrderedDestination]) -> OrderedDestinations:
    """Return (mesh, kind, reference) for each rule; None matches any. Raises BadSettings."""
    try:
        return frozenset(
            (rule.mesh, *((None, None) if rule.to is None else destination.parse_stored(rule.to)))
            for rule in wanted
        )
    except destination.BadDestination as error:
        raise BadSettings(f"settings: outbox.in_order: {error.message}", hint=error.hint) from None


def contains(ordered: OrderedDestinations, mesh: str | None, kind: str, ref: str) -> bool:
    """Return whether a rule matches this destination; mail and webhooks have no mesh."""
    return bool(ordered) and not ordered.isdisjoint(
        ((mesh, kind, ref), (None, kind, ref), (mesh, None, None), (None, None, None))
    )


def route_of(target_route: str, in_order: bool) -> str:
    return f"{target_route}{_SUFFIX if in_order else ''}"


def without_order(route: str) -> str:
    """Return the route's name, which sends with and without order share."""
    return route.removesuffix(_SUFFIX)


def is_in_order(route: str) -> bool:
    return route.endswith(_SUFFIX)


def mesh_of(route: str) -> str:
    """Return the mesh in a route's name. For a webhook's route the result is not a mesh."""
    return without_order(route).partition(":")[2]
