"""[jobs]: what jobs may use besides processes."""

from typing import Annotated

import msgspec
from msgspec import Meta


class JobsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[jobs]: what jobs may use besides processes."""

    container_socket: str | None = None
    """Docker or Podman socket, for jobs with an `image`; with it a program can become root"""

    spark: tuple[str, ...] = ()
    """program that runs Spark jobs; a job's command follows the program's own arguments"""

    attempts_max: Annotated[int, Meta(ge=1, le=256)] = 8
    """attempts that may run at the same time, over all jobs; further runs wait"""
