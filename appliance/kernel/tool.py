"""Tools for agents: what a subsystem offers at `/mcp`."""

from collections.abc import Callable
from typing import Any

import msgspec

from appliance.kernel.pauses import Bounded


class Tool(msgspec.Struct, frozen=True):
    """One tool. Models pay for every word: the description only adds to the names.

    takes       struct of the arguments
    gives       struct of the result, if clients get its schema
    call        called with the arguments and the caller's Principal; returns the result
    changes     `nothing`, `adds`, or `replaces` (may lose data)
    unfinished  whether a call with a `wait` has to wait longer, by its result or error; without it,
                calls can't be tasks
    by_channel  `call` checks the channels that a token is limited to; otherwise a token that is
                limited for this scope is refused
    audited     an administrative act, which the audit log records
    group       the subsystem that offers the tool, by which clients request tools
    bounded     a pause refuses each `use`, or only a call that does `wait`
    """

    name: str
    title: str
    description: str
    takes: type
    gives: type | None
    scope: str
    call: Callable[..., Any]
    changes: str = "nothing"
    idempotent: bool = False
    by_channel: bool = False
    unfinished: Callable[[Any], bool] | None = None
    audited: bool = False
    group: str = "hub"
    bounded: Bounded | None = None
