"""Access to streams and views: scopes `streams:<pattern>:<verb>` and `views:<pattern>:read`.

The verbs of streams are enqueue, subscribe and admin. The guard requires only USE, which every
token with a courier scope implies. On a loopback bind without configured courier tokens the guard
lets local callers pass without a token. A caller without any courier scope was let in by that rule,
and the specification allows such a caller everything.
"""

from collections.abc import Iterable
from functools import lru_cache

from appliance.courier.policy import matches
from appliance.courier.wire import StreamRefused
from appliance.kernel.auth import ADMIN, Principal

USE = "courier:use"
SCOPED = ("streams:", "views:")
ENQUEUE, SUBSCRIBE, OPERATE, READ = "enqueue", "subscribe", "admin", "read"


def require(principal: Principal, verb: str, name: str) -> None:
    """Raise unless the scopes allow it. `name` is a stream, a stream pattern, or a view."""
    if not _allowed(principal.scopes, verb, name):
        kind = "views" if verb == READ else "streams"
        raise StreamRefused(details={"scope": f"{kind}:{name}:{verb}"})


def is_allowed(principal: Principal, verb: str, name: str) -> bool:
    return _allowed(principal.scopes, verb, name)


@lru_cache(maxsize=16384)
def _allowed(scopes: frozenset[str], verb: str, name: str) -> bool:
    if ADMIN in scopes or not any(scope.startswith(SCOPED) for scope in scopes):
        return True
    return any(matches(glob, name) for glob in _globs(scopes, verb))


def _globs(scopes: Iterable[str], verb: str) -> Iterable[str]:
    """Return the scopes' patterns for this verb. A scope's pattern also matches covered patterns:
    only a wildcard can match a wildcard."""
    prefix, suffix = ("views:" if verb == READ else "streams:"), f":{verb}"
    for scope in scopes:
        if scope.startswith(prefix) and scope.endswith((suffix, ":*")):
            yield scope[len(prefix) : scope.rindex(":")]
