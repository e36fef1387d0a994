"""Builds duration histograms that can be merged, and computes quantiles with a known error.
Pure.

Bucket b counts durations above GAMMA^(b-1) and up to GAMMA^b seconds, so every quantile is within
RELATIVE_ERROR of a true value (DDSketch, Masson et al., VLDB 2019, with fixed bounds). Buckets from
several rows add up, so a quantile over many rows is as exact as a quantile for one row.
"""

import math
from collections.abc import Mapping

GAMMA = 1.02
RELATIVE_ERROR = (GAMMA - 1) / (GAMMA + 1)  # 1 %
BUCKET_MIN = -349  # up to a millisecond: shorter durations count here
BUCKET_MAX = 930  # 99 million seconds, about three years: longer durations count here


def bucket_of(seconds: float) -> int:
    """Return a duration's bucket. Negative durations count as the shortest."""
    if seconds <= 0:
        return BUCKET_MIN
    bucket = math.ceil(math.log(seconds) / math.log(GAMMA))
    return min(max(bucket, BUCKET_MIN), BUCKET_MAX)


def seconds_of(bucket: int) -> float:
    """Return the value that represents all durations in a bucket, within RELATIVE_ERROR."""
    return 2 * GAMMA**bucket / (GAMMA + 1)


def quantile(histogram: Mapping[int, int], share: float) -> float | None:
    """Return the duration in seconds that `share` (0 to 1) of all durations do not exceed, by
    nearest rank; None for an empty histogram."""
    count = sum(histogram.values())
    if not count:
        return None
    rank = max(1, math.ceil(share * count))
    for bucket in sorted(histogram):
        rank -= histogram[bucket]
        if rank <= 0:
            return seconds_of(bucket)
    raise AssertionError("a histogram with a negative count")
