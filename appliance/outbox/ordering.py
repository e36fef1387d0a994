"""Which destinations are in order, and the names of routes that say so. Pure.

Sends to a destination that is in order have a route of their own beside the mesh's other sends:
so the one is claimed destination by destination, and the other without a look at the first.
"""

from collections.abc import Sequence

from appliance.outbox import destination
from appliance.outbox.settings import InOrder

_SUFFIX = " in order"

Places = frozenset[tuple[str | None, str | None, str | None]]


def places(wanted: Sequence[InOrder]) -> Places:
    """(mesh, kind, reference), None for any. Raises BadDestination."""
    return frozenset(
        (one.mesh, *((None, None) if one.to is None else destination.parse(one.to)))
        for one in wanted
    )


def holds(found: Places, mesh: str, kind: str, ref: str) -> bool:
    """Whether one of the places is, or has, this destination."""
    return bool(found) and not found.isdisjoint(
        ((mesh, kind, ref), (None, kind, ref), (mesh, None, None), (None, None, None))
    )


def route_of(target: str, mesh: str, in_order: bool) -> str:
    return f"{target}:{mesh}{_SUFFIX if in_order else ''}"


def is_in_order(route: str) -> bool:
    return route.endswith(_SUFFIX)


def mesh_of(route: str) -> str:
    """The mesh in a route's name; of a webhook's route something that is no mesh."""
    return route.partition(":")[2].removesuffix(_SUFFIX)
