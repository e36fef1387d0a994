"""Lists commands that are administrative acts without the appliance. The appliance records
requests."""

import os
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from appliance.kernel.child_environment import OWN_PROCESS

ALWAYS = frozenset({
    "agentlip backup create", "agentlip backup fetch", "agentlip backup prune",
    "agentlip backup restore", "agentlip backup scheduled", "agentlip backup upload",
    "agentlip doctor clear",
    "agentlip doctor repair", "agentlip export compact", "agentlip identity accept-host",
    "agentlip identity remint", "agentlip migrate", "agentlip recover",
    "agentlip relay admins add", "agentlip relay admins remove",
    "agentlipd install-service", "agentlipd reset", "agentlipd uninstall",
    "agentlipd uninstall-service",
})  # fmt: skip
"""Commands that change files themselves."""

WHILE_STOPPED = frozenset({
    "agentlip mesh revoke-member", "agentlip token create", "agentlip token revoke",
    "agentlip token rotate",
})  # fmt: skip
"""Commands that send a request if the appliance runs, and otherwise change a store."""

_PLANS = ("plan", "show_plan", "dry_run", "print_only")


class CurrentCommand:
    """A command that is not recorded. `outcome` has the facts recorded at the end."""

    def __init__(self) -> None:
        self.outcome: dict[str, Any] = {}

    def begin(self) -> None:
        """Note that the command will change a store, because the appliance does not run."""


_NOT_RECORDED = CurrentCommand()
CURRENT = ContextVar("command", default=_NOT_RECORDED)


def is_act(command: str, given: Mapping[str, Any]) -> bool:
    """Return whether an invocation is recorded: not if its flags only show a plan, or if the
    appliance runs the command for a loop. Without `--yes` such a command changes nothing."""
    if command not in ALWAYS | WHILE_STOPPED or any(given.get(flag) for flag in _PLANS):
        return False
    if OWN_PROCESS in os.environ:
        return False
    return given.get("yes") is not False
