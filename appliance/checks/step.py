"""A repair step, as planned, shown and applied."""

import enum
from collections.abc import Mapping

import msgspec

REBUILD = "rebuild"
"""The action that builds derived data again, the only one that a running appliance applies."""


class Touches(enum.Enum):
    """The kind of data that a step changes."""

    STATE = "state"  # permissions, leftovers, logs, derived tables: with `repair` alone
    DATA = "data"  # what people and agents wrote: only with `repair --run CHECK --data`


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One change. Applying a step twice has the result of applying the step once, because an
    interrupted repair is planned and applied again.

    check      the check whose findings the step repairs
    subject    the finding's subject
    message    what the step does: "set the mode of .agentlip/token to 0600"
    action     a name in `doctor.actions.ACTIONS`
    arguments  for the action
    saves      files that are copied before, relative to the workspace
    """

    check: str
    subject: str
    message: str
    action: str
    arguments: Mapping[str, str] = {}
    touches: Touches = Touches.STATE
    saves: tuple[str, ...] = ()

    @property
    def by_appliance(self) -> bool:
        """Return whether a running appliance applies the step: only if nothing has to be copied
        before."""
        return self.action == REBUILD and not self.saves
