"""How long to wait between attempts: exponential backoff with jitter. Pure."""

from typing import Annotated

import msgspec
from msgspec import Meta

EXPONENT_MAX = 64  # from here on every delay is the longest one, and the power stays finite


class RetrySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The delays between retries, in seconds.

    initial_seconds  delay after the first failure
    max_seconds      the longest delay, before jitter
    factor           how much longer each delay is than the one before
    jitter           the share, 0 to 1, by which a delay varies, so that clients that failed
                     together don't come back together
    """

    initial_seconds: Annotated[float, Meta(gt=0)] = 0.5
    max_seconds: Annotated[float, Meta(gt=0)] = 30.0
    factor: Annotated[float, Meta(ge=1)] = 2.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.25

    @property
    def initial_ms(self) -> int:
        return max(1, round(self.initial_seconds * 1000))


def delay_seconds(
    retry: RetrySettings, failures: int, random_unit: float = 0.5, retry_after_seconds: float = 0.0
) -> float:
    """Return the seconds to wait after the `failures`-th failure in a row; 1 and below are the
    first.

    `random_unit` is a random number in [0, 1): 0.5 gives the delay without jitter. A peer that
    requested a delay (`Retry-After`) gets at least that much, plus jitter. The caller limits
    `retry_after_seconds`.
    """
    steps = min(max(failures, 1) - 1, EXPONENT_MAX)
    delay = min(retry.initial_seconds * retry.factor**steps, retry.max_seconds)
    delay *= 1 + retry.jitter * (2 * random_unit - 1)
    if retry_after_seconds > 0:
        delay = max(delay, retry_after_seconds * (1 + retry.jitter * random_unit))
    return delay
