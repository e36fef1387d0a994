"""Shows the sets as metrics."""

from collections.abc import Sequence
from datetime import datetime

from appliance.backup import metrics
from appliance.backup.catalogue import SetFacts

RESULTS = ("good", "bad", "inconclusive")


def show(sets: Sequence[SetFacts], newest: SetFacts | None, now_ms: int) -> None:
    """`sets` oldest first. Without a set, all times and sizes are 0."""
    metrics.sets.set(len(sets))
    row = None if newest is None else newest.row
    metrics.last_success.set(0 if newest is None else newest.cut_ms / 1000)
    metrics.age.set(0 if newest is None else max(0.0, (now_ms - newest.cut_ms) / 1000))
    metrics.stored_bytes.set(0 if row is None else row.stored_bytes)
    metrics.seconds.set(0 if row is None else row.seconds)
    metrics.pause.set(0 if row is None else row.pause_ms / 1000)
    checked = next(
        (each.row.verification for each in reversed(sets) if each.row.verification is not None),
        None,
    )
    metrics.verified.set(
        0 if checked is None else datetime.fromisoformat(checked.checked_at).timestamp()
    )
    for result in RESULTS:
        is_it = checked is not None and checked.result == result
        metrics.verification.labels(result).set(is_it)
