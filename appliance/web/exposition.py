"""Metrics as Prometheus text, without holding up the event loop.

Ten thousand series take 60 ms of core time, so the text is made in parts, by one caller at a time,
and kept for a second: more scrapers than one cost no more than one.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import gevent
from gevent.lock import BoundedSemaphore
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from appliance.kernel.metrics import PART_SAMPLES

KEEP_SECONDS = 1.0  # Prometheus scrapes every 5 s or less often
OPENMETRICS = "application/openmetrics-text"

Encode = Callable[["OneMetric"], bytes]


class OneMetric(NamedTuple):
    """A registry with one metric, for the client library's encoders."""

    metric: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.metric,)


class ExpositionText(NamedTuple):
    text: bytes
    media: str
    at: float


class Exposition:
    """A registry's text. Used on the event loop only."""

    def __init__(self, registry: CollectorRegistry, monotonic: Callable[[], float]) -> None:
        self._registry = registry
        self._monotonic = monotonic
        self._kept: dict[bool, ExpositionText] = {}
        self._collecting = BoundedSemaphore()

    def read(self, accept: str) -> ExpositionText:
        """Return the text in the format that an `Accept` header asks for, at most KEEP_SECONDS old.

        Only two formats exist: a client that varies the versions in `accept` makes no others.
        """
        is_open = OPENMETRICS in accept
        with self._collecting:
            kept = self._kept.get(is_open)
            if kept is None or self._monotonic() - kept.at >= KEEP_SECONDS:
                encode, media = choose_encoder(OPENMETRICS if is_open else "")
                text = b"".join(parts_of(self._registry, encode)) + b"# EOF\n" * is_open
                kept = self._kept[is_open] = ExpositionText(text, media, self._monotonic())
        return kept


def parts_of(registry: CollectorRegistry, encode: Encode) -> Iterator[bytes]:
    """Encode a registry in parts with about PART_SAMPLES, with an event loop turn between."""
    name, samples = "", 0
    for metric in registry.collect():
        text = encode(OneMetric(metric)).removesuffix(b"# EOF\n")
        while metric.name == name and text.startswith(b"#"):  # another part of this metric
            text = text.partition(b"\n")[2]
        yield text
        name, samples = metric.name, samples + len(metric.samples)
        if samples >= PART_SAMPLES:
            samples = 0
            gevent.sleep(0)
