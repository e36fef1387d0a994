"""Rates and lags for an hour, a day and a week, from samples that the process keeps from its own
metrics."""

from array import array
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from appliance.host import Host
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.metrics import REGISTRY
from appliance.kernel.route import Operation, Route
from appliance.kernel.subsystem import Subsystem
from appliance.operations.metrics import Key, totals
from appliance.operations.wire import READ, Rates, RateSeries, RatesQuery, RatesRange, Unit
from appliance.web.responders import Responders, reply_with

INTERVAL_SECONDS = 10.0
SAMPLES_MAX = 361  # one hour, and the sample before it: 90 KB
RANGES: Mapping[RatesRange, tuple[int, int]] = {
    "1h": (1, SAMPLES_MAX),
    "24h": (30, 289),
    "7d": (180, 337),
}
"""Every n-th sample, and how many of them."""
DIGITS_MAX = 5  # more would be noise


class Sampled(NamedTuple):
    """A metric, summed over its labels, or only the part with `status`."""

    name: str
    title: str
    unit: Unit
    metric: str
    status: str | None = None


PER_SECOND: Unit = "per second"
SERIES = (
    Sampled("requests", "HTTP requests", PER_SECOND, "agentlip_http_responses_total"),
    Sampled("changes", "Changes in the hub", PER_SECOND, "agentlip_hub_mutations_total"),
    Sampled("bus_messages", "Messages on the bus", PER_SECOND, "agentlip_bus_published_total"),
    Sampled("sends", "Sends accepted", PER_SECOND, "agentlip_outbox_sends_total"),
    Sampled("deliveries", "Delivery attempts", PER_SECOND, "agentlip_outbox_deliveries_total"),
    Sampled("received", "Messages from meshes", PER_SECOND, "agentlip_inbox_received_total"),
    Sampled("accepted", "Messages to meshes", PER_SECOND, "agentlip_broker_accepts_total"),
    Sampled("trouble", "Failed reads and writes", PER_SECOND, "agentlip_store_trouble_total"),
    Sampled("loop_failures", "Failed rounds", PER_SECOND, "agentlip_loop_failures_total"),
    Sampled("envelopes", "Envelopes in the courier", "count", "agentlip_courier_envelopes"),
    Sampled("pending", "Pending sends", "count", "agentlip_outbox_depth_sends", "pending"),
    Sampled("dead", "Dead sends", "count", "agentlip_outbox_depth_sends", "dead"),
    Sampled("oldest", "Oldest pending send", "seconds", "agentlip_outbox_oldest_pending_seconds"),
    Sampled("outstanding", "Not acked yet", "count", "agentlip_broker_deliveries_outstanding"),
    Sampled("index_lag", "Messages not indexed", "count", "agentlip_hub_index_lag_rows"),
    Sampled("plugin_lag", "Events behind: plugins", "count", "agentlip_plugins_lag_events"),
    Sampled("export_lag", "Events behind: export", "count", "agentlip_export_waiting_events"),
    Sampled("writes", "Writes that wait", "count", "agentlip_store_queue_jobs"),
    Sampled("loop_delay", "Event loop delay", "seconds", "agentlip_loop_delay_seconds"),
    Sampled("sockets", "Open sockets", "count", "agentlip_socket_open"),
    Sampled("cpu", "Processor time", PER_SECOND, "process_cpu_seconds_total"),
    Sampled("memory", "Memory in use", "bytes", "process_resident_memory_bytes"),
)


class _Sample(NamedTuple):
    at_ms: int
    seconds: float  # the monotonic clock
    values: "array[float]"


class RecentRates:
    """The samples of each range, which end with the process."""

    def __init__(
        self, read: Callable[[Collection[Key]], Mapping[Key, float]], monotonic: Callable[[], float]
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._samples: dict[RatesRange, deque[_Sample]] = {
            name: deque(maxlen=samples_max) for name, (_, samples_max) in RANGES.items()
        }
        self._count = 0

    def sample(self, now_ms: int) -> None:
        """Add a sample, and remove the oldest ones."""
        keys = [(series.metric, series.status) for series in SERIES]
        values = self._read(keys)
        row = array("d", (values[key] for key in keys))
        sample = _Sample(now_ms, self._monotonic(), row)
        for name, (every, _) in RANGES.items():
            if self._count % every == 0:
                self._samples[name].append(sample)
        self._count += 1

    def rates(self, after: int | None = None, span: RatesRange = "1h") -> Rates:
        """Return all samples except the first, or the samples after `after`. The last one is the
        newest, in every range."""
        samples, newest = list(self._samples[span]), self._samples["1h"][-1]
        if samples[-1] is not newest:
            samples.append(newest)
        start = next((i for i, each in enumerate(samples) if each.at_ms == after), 0)
        pairs = list(pairwise(samples[start:]))
        series = [
            RateSeries(
                each.name, each.title, each.unit, each.metric,
                [_value(each.unit, index, *pair) for pair in pairs],
            )
            for index, each in enumerate(SERIES)
        ]  # fmt: skip
        every, _ = RANGES[span]
        return Rates(INTERVAL_SECONDS * every, [later.at_ms for _, later in pairs], series)


def _value(unit: Unit, index: int, earlier: _Sample, later: _Sample) -> float:
    value = later.values[index]
    if unit == PER_SECOND:
        value = (value - earlier.values[index]) / max(0.001, later.seconds - earlier.seconds)
    return float(f"{max(0.0, value):.{DIGITS_MAX}g}")


class Sampler(Loop):
    name = "rates_sampler"
    interval_seconds = INTERVAL_SECONDS
    runs_read_only = True

    def __init__(self, rates: RecentRates, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._rates = rates

    def run_once(self, now_ms: int) -> dict[str, int]:
        self._rates.sample(now_ms)
        return {"samples": 1}


def routes(rates: RecentRates) -> list[Route]:
    return [
        Route("/api/v1/rates", Responders(
            get=reply_with(lambda query: rates.rates(query.after, query.range)),
        ), {
            "GET": Operation(READ, query=RatesQuery, reply=Rates,
                             summary="List rates and lags for an hour, a day or a week"),
        }),
    ]  # fmt: skip


class RatesSubsystem(Subsystem):
    name = "rates"

    def __init__(self, host: Host) -> None:
        self._clock = host.clock
        self._rates = RecentRates(partial(totals, REGISTRY), host.clock.monotonic)
        self.loops = (Sampler(self._rates, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self._rates)

    def start(self) -> None:
        self._rates.sample(self._clock.now_ms())  # so that the first round has a rate
