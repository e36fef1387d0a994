"""Stands in for a subsystem whose store is damaged: every route and socket answers with that error.

Scopes stay as they were, so nobody learns more than before. A request that its body's signature
would open is answered without one: the keys to check it with are in the damaged store.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from appliance.kernel.errors import ApplianceError
from appliance.kernel.route import Operation, Route, responder_name


class Suspended:
    """A resource with a responder for each operation; each raises `error`."""

    def __init__(self, names: Sequence[str], error: ApplianceError) -> None:
        def refuse(*_args: Any, **_given: Any) -> None:
            raise error

        for name in names:
            setattr(self, name, refuse)


def suspended_routes(routes: Sequence[Route], error: ApplianceError) -> list[Route]:
    return [
        msgspec.structs.replace(
            route,
            resource=Suspended([responder_name(m, route.suffix) for m in route.operations], error),
            operations={method: _bare(each) for method, each in route.operations.items()},
        )
        for route in routes
    ]


def suspended_socket(error: ApplianceError) -> Any:
    """What serves a socket: accepted, then closed with the error's code."""

    def refuse(*_args: Any) -> int:
        raise error

    return refuse


def _bare(operation: Operation) -> Operation:
    """Without a body to decode or a signature to check."""
    return msgspec.structs.replace(
        operation,
        scope=None if operation.signer is not None else operation.scope,
        signer=None,
        body=None,
        query=None,
        cost=None,
        batch=False,
        each=None,
        keyed=False,
    )
