"""Counts durations in the buckets that `appliance.shared.histogram` defines."""

from math import log

from pyspark.sql import Column
from pyspark.sql import functions as f

from appliance.shared import histogram


def bucket_of(seconds: Column) -> Column:
    """Return a duration's bucket, as `histogram.bucket_of` computes it."""
    bucket = f.ceil(f.ln(seconds) / log(histogram.GAMMA))
    inside = f.greatest(f.least(bucket, f.lit(histogram.BUCKET_MAX)), f.lit(histogram.BUCKET_MIN))
    return f.when(seconds <= 0, histogram.BUCKET_MIN).otherwise(inside).cast("long")
