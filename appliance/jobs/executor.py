"""What an executor does with an attempt."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from appliance.jobs import wire


class AttemptOrder(msgspec.Struct, frozen=True):
    """`folder`: where the command runs. `kept`: the folder of its output and artefacts.
    `is_adopted`: an earlier process has started it."""

    run_id: str
    number: int
    spec: wire.JobSpec
    environment: Mapping[str, str]
    folder: Path
    kept: Path
    is_adopted: bool = False

    @property
    def artefacts(self) -> Path:
        return self.kept / f"{self.number}"


class AttemptStart(msgspec.Struct, frozen=True):
    """`handle`: how the executor knows it again. `limits`: how they are enforced."""

    handle: str
    limits: str


class AttemptEnd(msgspec.Struct, frozen=True):
    """`state`: succeeded, failed, cancelled or lost."""

    state: str
    exit_code: int | None = None
    error: str | None = None
    output_bytes: int = 0
    tail: str = ""
    artefacts: Sequence[wire.Artefact] = ()


class NotStarted(Exception):
    """The attempt can't be started; the message says why."""
