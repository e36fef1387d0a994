"""The scopes that a subsystem requires, and those that a token may have."""

from collections.abc import Iterable, Mapping

import msgspec


class Scopes(msgspec.Struct, frozen=True):
    """The scopes of a subsystem.

    grantable  scopes that a token may have
    implied    a scope, and the prefixes of scopes that include it
    free       scopes that need no token on a loopback bind
    """

    grantable: frozenset[str] = frozenset()
    implied: Mapping[str, tuple[str, ...]] = {}
    free: frozenset[str] = frozenset()


def join(every: Iterable[Scopes]) -> Scopes:
    """The scopes of several subsystems together."""
    scopes = list(every)
    return Scopes(
        frozenset().union(*(scope.grantable for scope in scopes)),
        {scope: beginnings for part in scopes for scope, beginnings in part.implied.items()},
        frozenset().union(*(scope.free for scope in scopes)),
    )
