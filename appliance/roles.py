"""[roles]: which subsystems this appliance runs, and what follows from one being switched off.

`tokens` always runs. `identity` runs when `outbox` or `inbox` does.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from appliance.kernel.config import BadSettings
from appliance.kernel.datadir import STORES
from appliance.kernel.errors import Missing

IDENTITY = "identity"
NEEDS: dict[str, tuple[str, ...]] = {
    "webhooks": ("hub", "outbox"),
    "plugins": ("hub",),
    "mcp": ("hub",),
    "export": ("hub",),
    "hooks": ("inbox",),
}
"""The roles that a role can't run without. They need no others themselves."""

PATHS: dict[str, tuple[str, ...]] = {
    "hub": (
        "/api/v1/channels",
        "/api/v1/topics",
        "/api/v1/messages",
        "/api/v1/events",
        "/api/v1/search",
        "/ws",
    ),
    "webhooks": ("/api/v1/webhooks",),
    "plugins": ("/api/v1/plugins", "/api/v1/messages/*/enrichments"),
    "mcp": ("/mcp",),
    "courier": (
        "/v1/ack",
        "/v1/advertise",
        "/v1/enqueue",
        "/v1/envelope",
        "/v1/extend",
        "/v1/live",
        "/v1/metrics",
        "/v1/nack",
        "/v1/peek",
        "/v1/publish",
        "/v1/receive",
        "/v1/rules",
        "/v1/snapshot",
        "/v1/stats",
        "/v1/streams",
        "/v1/subscribe",
    ),
    "outbox": ("/v1/outbox", "/v1/send", "/v1/topic/post"),
    "inbox": (
        "/v1/compat",
        "/v1/events",
        "/v1/health",
        "/v1/heartbeat",
        "/v1/inbox",
        "/v1/peers",
        "/v1/profile",
        "/v1/topic/list",
        "/v1/topic/subscribe",
        "/v1/topic/unsubscribe",
        "/v1/version",
    ),
    "hooks": ("/v1/hooks",),
    "broker": ("/broker/v1",),
    "export": ("/api/v1/reports", "/api/v1/segments", "/api/v1/snapshots"),
    IDENTITY: ("/v1/identity",),
}
"""The paths of each subsystem. A path covers all paths below it, `*` stands for any one segment,
and of several that fit the longest holds. Only refusals depend on this table."""


class RoleOff(Missing):
    code = "ROLE_OFF"
    sentence = "this subsystem is switched off here"
    advice = "set its role to true under [roles] in agentlip.toml, then: agentlipd restart"


class RolesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[roles]: which subsystems run. One that is false has no routes, no loops and no open store;
    its file stays as it is. Roles that need it are then off too."""

    hub: bool = True  # channels, topics, messages, events and search
    webhooks: bool = True  # delivery of the hub's events to URLs; needs hub and outbox
    plugins: bool = True  # plugins that process the hub's messages; needs hub
    mcp: bool = True  # tools for agents at /mcp; needs hub
    courier: bool = True  # streams of envelopes between programs
    outbox: bool = True  # sends to meshes, webhooks and mail, kept until they are delivered
    inbox: bool = True  # messages received from meshes
    hooks: bool = True  # commands that run on events of the inbox; needs inbox
    broker: bool = True  # relay of meshes, for members here and elsewhere
    export: bool = True  # segments, snapshots and reports of the hub's log; needs hub

    @property
    def off(self) -> dict[str, str]:
        """Each subsystem that does not run, with the setting that switches it off."""
        found = {}
        for role in self.__struct_fields__:
            causes = [one for one in (role, *NEEDS.get(role, ())) if not getattr(self, one)]
            if causes:
                found[role] = f"roles.{causes[0]}"
        if not (self.outbox or self.inbox):
            found[IDENTITY] = "roles.outbox"
        return found

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores of those that run."""
        off = self.off
        return tuple(store for store in STORES if store not in off)

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Raises BadSettings for a role that is set to true and can't run."""
        for role, needed in NEEDS.items():
            missing = [one for one in needed if not getattr(self, one)]
            if given.get(role) is True and missing:
                raise BadSettings(
                    f"settings: roles.{role} is true, but it needs {missing[0]},"
                    f" and roles.{missing[0]} is false",
                    hint=f"set roles.{missing[0]} = true, or remove roles.{role}",
                )

    def refusal(self, path: str) -> RoleOff | None:
        """The error for a path of a subsystem that does not run; None: not such a path."""
        role = role_of(path)
        setting = None if role is None else self.off.get(role)
        if setting is None:
            return None
        return RoleOff(
            f"{role} is switched off here ({setting} = false)",
            details={"role": role, "setting": setting},
            hint=f"set {setting} = true in agentlip.toml, then: agentlipd restart",
        )


def role_of(path: str) -> str | None:
    """The subsystem that a path belongs to."""
    segments = path.split("/")
    fitting = [
        (len(pattern.split("/")), role)
        for role, patterns in PATHS.items()
        for pattern in patterns
        if _fits(pattern.split("/"), segments)
    ]
    return max(fitting)[1] if fitting else None


def _fits(pattern: list[str], segments: list[str]) -> bool:
    if len(segments) < len(pattern):
        return False
    return all(mine in ("*", theirs) for mine, theirs in zip(pattern, segments, strict=False))
