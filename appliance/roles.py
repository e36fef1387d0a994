"""Decides which subsystems this appliance runs ([roles]).

`tokens` always runs. `identity` runs when `outbox` or `inbox` does.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from appliance.declared_paths import PATHS
from appliance.declared_roles import NEEDS, Roles
from appliance.kernel.config import BadSettings
from appliance.kernel.errors import Missing
from appliance.workspace.datadir import STORES

IDENTITY = "identity"
READ_ONLY = "store.read_only"
READ_ONLY_ROLES = ("hub", "mcp")


class RoleOff(Missing):
    code = "ROLE_OFF"
    default_message = "this subsystem is switched off"
    default_hint = "set its role to true under [roles] in agentlip.toml, then: agentlipd restart"


class RolesSettings(Roles, frozen=True):
    """[roles]: which subsystems run. A role that is false has no routes, no loops and no open
    store; the file is not changed. Dependent roles are off too."""

    @property
    def off(self) -> dict[str, str]:
        """Return each subsystem that does not run, with the setting that switches it off."""
        off: dict[str, str] = {}
        for role in self.__struct_fields__:
            for needed_role in (role, *NEEDS.get(role, ())):
                if not getattr(self, needed_role):
                    off.setdefault(role, f"roles.{needed_role}")
        if not (self.outbox or self.inbox):
            off[IDENTITY] = "roles.outbox"
        return off

    @property
    def stores(self) -> tuple[str, ...]:
        """Return the running subsystems' stores."""
        off = self.off
        return tuple(store for store in STORES if store not in off)

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Raise BadSettings if a role is set to true and a role that it needs is off."""
        for role, needed in NEEDS.items():
            missing = [needed_role for needed_role in needed if not getattr(self, needed_role)]
            if given.get(role) is True and missing:
                raise BadSettings(
                    f"settings: roles.{role} is true, but it needs {missing[0]},"
                    f" and roles.{missing[0]} is false",
                    hint=f"set roles.{missing[0]} = true, or remove roles.{role}",
                )


class ReadOnlyRoles(RolesSettings, frozen=True):
    """The roles with `store.read_only`: the hub and its tools for agents, if on. All further
    subsystems would deliver, relay or process something, and record that."""

    @classmethod
    def of(cls, roles: RolesSettings) -> "ReadOnlyRoles":
        others = {role: False for role in roles.__struct_fields__ if role not in READ_ONLY_ROLES}
        return cls(**msgspec.structs.asdict(roles) | others)

    @property
    def off(self) -> dict[str, str]:
        return {
            role: setting if role in READ_ONLY_ROLES else READ_ONLY
            for role, setting in super().off.items()
        }


def role_of(path: str) -> str | None:
    """Return the subsystem that serves a path, whether it is on or off. A pattern in PATHS
    covers all paths below it, `{…}` stands for one segment, and the longest match decides."""
    segments = path.split("/")
    matches = [
        (pattern.count("/"), role)
        for role, patterns in PATHS.items()
        for pattern in patterns
        if _matches(pattern.split("/"), segments)
    ]
    return max(matches)[1] if matches else None


def role_off(off: Mapping[str, str], path: str) -> RoleOff | None:
    """Return the error for a switched-off subsystem's path; None for any other path."""
    role = role_of(path)
    setting = None if role is None else off.get(role)
    if setting is None:
        return None
    why = f"is switched off (`{setting} = false`)"
    hint = f"set {setting} = true in agentlip.toml, then: agentlipd restart"
    if setting == READ_ONLY:
        why = "does not run while the appliance serves read-only"
        hint = "agentlipd restart; and without store.read_only in agentlip.toml"
    return RoleOff(f"{role} {why}", details={"role": role, "setting": setting}, hint=hint)


def _matches(pattern: list[str], segments: list[str]) -> bool:
    if len(segments) < len(pattern):
        return False
    pairs = zip(pattern, segments, strict=False)
    return all(word == segment or word.startswith("{") for word, segment in pairs)
