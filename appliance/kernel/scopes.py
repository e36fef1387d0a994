"""The scopes that a subsystem requires, and those that a token may have."""

from collections.abc import Iterable, Mapping

import msgspec


class Scopes(msgspec.Struct, frozen=True):
    """A subsystem's scopes.

    grantable  scopes that a token may have
    implied    a scope, and the prefixes of scopes that include it
    free       scopes that need no token on a loopback bind
    """

    grantable: frozenset[str] = frozenset()
    implied: Mapping[str, tuple[str, ...]] = {}
    free: frozenset[str] = frozenset()


def join(every: Iterable[Scopes]) -> Scopes:
    """Join several subsystems' scopes."""
    scopes = list(every)
    return Scopes(
        frozenset().union(*(scope.grantable for scope in scopes)),
        {scope: beginnings for part in scopes for scope, beginnings in part.implied.items()},
        frozenset().union(*(scope.free for scope in scopes)),
    )
