"""Defines the audit log's structs over HTTP."""

from typing import Annotated

from msgspec import Meta, Struct

from appliance.audit.log.file import AuditedAct
from appliance.kernel.scopes import Scopes

READ = "audit:read"
SCOPES = Scopes(frozenset({READ}))


class ActsQuery(Struct, frozen=True):
    """A page. `before`: only acts with lower numbers, for the next page; `actor`: only this
    actor's acts."""

    before: Annotated[int, Meta(ge=1)] = 2**62
    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    actor: Annotated[str, Meta(max_length=256)] = ""


class AuditedActs(Struct, frozen=True):
    """Acts, newest first. `next`: `before` for the next page; 0 on the last one."""

    acts: list[AuditedAct]
    next: int
