"""What an executor does with an attempt."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

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


class Execution(Protocol):
    """One attempt. `wait` is called once."""

    started: AttemptStart

    def wait(self) -> AttemptEnd:
        """Does not block the event loop. Never raises."""

    def cancel(self) -> None:
        """End it soon; `wait` returns then."""

    def kill(self) -> None:
        """End it at once. A container goes on, for the next process."""

    def remove(self) -> None:
        """After `wait`: leave nothing of it. Raises OSError."""


Start = Callable[[AttemptOrder], Execution]
"""Raises NotStarted."""

Find = Callable[[str], Mapping[str, str] | None]
"""The environment of what an attempt of an earlier process left running, by its handle. Raises
OSError if that can't be known now."""


class NotStarted(Exception):
    """The attempt can't be started; the message says why."""
