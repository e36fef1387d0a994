"""The settings of section [jobs]: reported runs of batch jobs."""

from typing import Annotated

import msgspec
from msgspec import Meta


class JobsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[jobs]: runs that batch jobs report."""

    jobs_max: Annotated[int, Meta(ge=1, le=1_000)] = 50  # jobs whose latest run is kept and shown
