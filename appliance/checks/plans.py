"""Repair steps that several checks need.

A plan only reads. A step has the subject from the finding that it repairs; a step with a separate
subject repairs all findings from its check. A finding without a step can't be repaired
automatically.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from appliance.checks.check import Finding
from appliance.checks.context import Context
from appliance.checks.repairs import DerivedPart
from appliance.checks.step import REBUILD, Step, Touches
from appliance.workspace.datadir import DataDir

Plan = Callable[[Context, Sequence[Finding]], Iterable[Step]]
OWNER_ONLY = "0700"


def restrict(check: str, subject: str, name: str, mask: str) -> Step:
    what = (
        f"give only the owner access to {name}"
        if mask == OWNER_ONLY
        else f"take the permission to write {name} from all users"
    )
    return Step(
        check=check,
        subject=subject,
        message=what,
        action="set-mode",
        arguments={"path": name, "mode": mask},
    )


def remove(datadir: DataDir, finding: Finding, path: Path) -> Step:
    name = _relative(datadir, path)
    return Step(
        check=finding.check,
        subject=finding.subject,
        message=f"remove {name}, which no process uses",
        action="remove-file",
        arguments={"path": name},
        saves=(name,),
    )


def rebuild(
    context: Context, finding: Finding, part: DerivedPart, store: str, *, copied: bool = False
) -> Step:
    """Create a step that builds a part again. `copied`: the store is copied before, because a
    damaged index may contain what the table has lost."""
    return Step(
        check=finding.check,
        subject=finding.subject,
        message=part.message.format(store),
        action=REBUILD,
        arguments={"store": store, "what": part.name},
        saves=_copy_of(context, store) if copied or part.copied else (),
    )


def change(
    context: Context,
    finding: Finding,
    action: str,
    message: str,
    store: str,
    touches: Touches = Touches.STATE,
    more: Mapping[str, str] = {},
) -> Step:
    """Create a step that changes a store, which is copied before."""
    return Step(
        check=finding.check,
        subject=finding.subject,
        message=message,
        action=action,
        arguments={"store": store, **more},
        touches=touches,
        saves=_copy_of(context, store),
    )


def _copy_of(context: Context, store: str) -> tuple[str, ...]:
    return (_relative(context.datadir, context.datadir.database(store)),)


def _relative(datadir: DataDir, path: Path) -> str:
    return str(path.relative_to(datadir.workspace))
