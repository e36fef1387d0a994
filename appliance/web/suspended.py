"""Replaces the routes and sockets of a subsystem whose store is damaged: each raises that error.

Scopes stay the same, so unauthorized callers learn nothing. Signatures are not checked, because
the keys are in the damaged store.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from appliance.kernel.errors import ApplianceError
from appliance.kernel.route import Operation, Route, responder_name


def suspended_routes(routes: Sequence[Route], error: ApplianceError) -> list[Route]:
    refuse = refuse_with(error)
    return [
        msgspec.structs.replace(
            route,
            resource=SimpleNamespace(
                **{responder_name(method, route.suffix): refuse for method in route.operations}
            ),
            operations={method: _bare(operation) for method, operation in route.operations.items()},
        )
        for route in routes
    ]


def refuse_with(error: ApplianceError) -> Callable[..., Any]:
    """Return a responder, or what serves a socket: it accepts the socket, and closes it with the
    error's code."""

    def refuse(*_args: Any, **_given: Any) -> None:
        raise error

    return refuse


def _bare(operation: Operation) -> Operation:
    """Return the operation without a body to decode or a signature to check."""
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
