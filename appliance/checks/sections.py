"""A section of agentlip.toml, for checks and hints."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from appliance.kernel import config

Section = TypeVar("Section", bound=msgspec.Struct)


def section(file: Path, name: str, kind: type[Section]) -> Section | None:
    """Return the section alone: another check reports other errors in the file. Return None if
    the section can't be read or is not valid."""
    fields = [(name, kind, msgspec.field(default_factory=kind))]
    alone = msgspec.defstruct("Alone", fields, frozen=True)
    try:
        read: Section = getattr(config.load(alone, file, os.environ), name)
    except config.BadSettings:
        return None
    return read
