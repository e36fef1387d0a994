"""Which scopes a subsystem asks of callers, and which a token may be given."""

from collections.abc import Iterable, Mapping

import msgspec


class Scopes(msgspec.Struct, frozen=True):
    """What a subsystem asks of callers.

    grantable  scopes that a token may be given
    implied    a scope, and the beginnings of scopes each of which implies it
    free       scopes that need no token on a loopback bind
    """

    grantable: frozenset[str] = frozenset()
    implied: Mapping[str, tuple[str, ...]] = {}
    free: frozenset[str] = frozenset()


def joined(every: Iterable[Scopes]) -> Scopes:
    """Those of several subsystems together."""
    scopes = list(every)
    return Scopes(
        frozenset().union(*(one.grantable for one in scopes)),
        {scope: beginnings for one in scopes for scope, beginnings in one.implied.items()},
        frozenset().union(*(one.free for one in scopes)),
    )
