"""[jobs]: what jobs may use besides processes."""

from typing import Annotated

import msgspec
from msgspec import Meta


class JobsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[jobs]: what jobs may use besides processes."""

    container_socket: str | None = None
    """socket of Docker or Podman, for jobs with an `image`; with it a program can become root"""

    spark: tuple[str, ...] = ()
    """program that runs Spark jobs; it gets their command behind its own arguments"""

    attempts_max: Annotated[int, Meta(ge=1, le=256)] = 8
    """attempts of all jobs that run at the same time; other runs wait"""
