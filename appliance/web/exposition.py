"""Metrics as Prometheus text, without holding up the event loop.

Ten thousand series take 20 ms of core time, so the text is made in parts, by one caller at a time,
and kept for a second: more scrapers than one cost no more than one. The client library writes a
series' name and labels once, and later scrapes only add the value.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import gevent
from gevent.lock import BoundedSemaphore
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from appliance.kernel.metrics import PART_SAMPLES

KEEP_SECONDS = 1.0  # Prometheus scrapes every 5 s or less often
OPENMETRICS = "application/openmetrics-text"
SERIES_MAX = 20_000  # whose names and labels are kept, with 200 bytes each

_number: Callable[[float], str] = floatToGoString
Encode = Callable[["OneMetric"], bytes]

FORMATS: tuple[tuple[Encode, str], ...] = (choose_encoder(""), choose_encoder(OPENMETRICS))


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
                encode, media = FORMATS[is_open]
                text = b"".join(parts_of(self._registry, encode)) + b"# EOF\n" * is_open
                kept = self._kept[is_open] = ExpositionText(text, media, self._monotonic())
        return kept


def parts_of(registry: CollectorRegistry, encode: Encode) -> Iterator[bytes]:
    """Encode a registry in parts with about PART_SAMPLES, with an event loop turn between."""
    name, samples = "", 0
    for metric in registry.collect():
        if metric.name != name:
            description = (metric.name, metric.documentation, metric.type, metric.unit)
            yield _encode(encode, description).encode()
        yield "".join([_sample_line(encode, metric, sample) for sample in metric.samples]).encode()
        name, samples = metric.name, samples + len(metric.samples)
        if samples >= PART_SAMPLES:
            samples = 0
            gevent.sleep(0)


def _sample_line(encode: Encode, metric: Metric, sample: Sample) -> str:
    series = _series(encode, metric.name, metric.type, sample.name, tuple(sample.labels.items()))
    return f"{series}{_number(sample.value)}\n"


@lru_cache(maxsize=2 * SERIES_MAX)
def _series(
    encode: Encode, metric: str, kind: str, name: str, labels: tuple[tuple[str, str], ...]
) -> str:
    """Return a sample's line up to its value."""
    text = _encode(encode, (metric, "", kind), Sample(name, dict(labels), 0.0))
    return text.removesuffix("0.0\n").rpartition("\n")[2]


def _encode(encode: Encode, description: tuple[str, ...], *samples: Sample) -> str:
    metric = Metric(*description)
    metric.samples.extend(samples)
    return encode(OneMetric(metric)).decode().removesuffix("# EOF\n")
