"""Replaces the routes and sockets of a subsystem whose store is damaged: each raises that error.

Scopes stay the same, so unauthorized callers learn nothing. Signatures are not checked, because
the keys are in the damaged store.
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
            operations={method: _bare(operation) for method, operation in route.operations.items()},
        )
        for route in routes
    ]


def suspended_socket(error: ApplianceError) -> Any:
    """Serves a socket: accepts it, then closes it with the error's code."""

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
        cost=None,
        batch=False,
        list_field=None,
        keyed=False,
    )
