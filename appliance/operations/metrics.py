"""Metrics for messages to the operator, and totals for rates."""

from collections.abc import Collection
from itertools import chain

from prometheus_client import CollectorRegistry, ProcessCollector

from appliance.kernel.metrics import counter
from appliance.kernel.threads import yield_to_loop

messages = counter(
    "notify_messages_total",
    "Messages to the operator, by carrier: outbox, hub, direct; none: lost messages",
    ("via",),
)
for _via in ("outbox", "direct", "hub", "none"):
    messages.labels(_via)  # so that the first message is an increase


Key = tuple[str, str | None]
"""The sample name and `status`; None: the sum over all labels."""
_process = ProcessCollector(registry=None)  # the registry knows no metric names


def totals(registry: CollectorRegistry, keys: Collection[Key]) -> dict[Key, float]:
    """Return each key's value, or 0 without a sample."""
    values = dict.fromkeys(keys, 0.0)
    wanted = registry.restricted_registry({name for name, _ in keys})
    for metric in chain(wanted.collect(), _process.collect()):
        yield_to_loop()  # a metric comes in parts
        for sample in metric.samples:
            for key in {(sample.name, sample.labels.get("status")), (sample.name, None)}:
                if key in values:
                    values[key] += sample.value
    return values
