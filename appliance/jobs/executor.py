"""Defines an executor's input and result for an attempt."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from appliance.jobs import wire


class ClaimedAttempt(msgspec.Struct, frozen=True):
    run_id: str
    job: str
    number: int
    spec: wire.JobSpec
    due_steady_ms: int


class AttemptOrder(ClaimedAttempt, frozen=True):
    """An attempt to run. `folder`: where the command runs. `kept`: the folder for output and
    artefacts. `is_adopted`: an earlier process has started it."""

    environment: Mapping[str, str]
    folder: Path
    kept: Path
    is_adopted: bool = False

    @property
    def artefacts(self) -> Path:
        return self.kept / f"{self.number}"


class AttemptEnd(msgspec.Struct, frozen=True):
    """An attempt's result. `state`: succeeded, failed, cancelled or lost."""

    state: str
    exit_code: int | None = None
    error: str | None = None
    output_bytes: int = 0
    tail: str = ""
    artefacts: Sequence[wire.Artefact] = ()


class NotStarted(Exception):
    """The attempt can't be started; the message says why."""
