"""Defines the worker bus metrics. Users name agents, so only some agents are labels."""

from collections.abc import Sequence

from appliance.kernel.metrics import counter, gauge

AGENTS_MAX = 20  # agents with a separate lag

published = counter("bus_published_total", "Messages published through the appliance")
claims = counter("bus_claims_total", "Claims asked for through the appliance", ("outcome",))
"""outcome: claimed, held"""

sessions = gauge("bus_sessions", "Long polls, waits for claims and event streams", ("kind",))
"""kind: poll, claim, stream"""

exported = counter("bus_exported_total", "Messages written to bus.jsonl")
pruned = counter("bus_pruned_total", "Messages pruned by age")
stored = gauge("bus_stored_messages", "Messages in the file, at the last count")
lag = gauge("bus_lag_messages", "Messages that wait for a live agent, at the last count; the 20 "
                                "agents with most, and the sum for all other agents without a "
                                "name", ("agent",))  # fmt: skip
expired = gauge("bus_expired_claims", "Claims whose lease has ended, at the last count")
workers = gauge("bus_workers", "Workers by state, at the last count", ("state",))


def show_lags(lags: Sequence[tuple[int, str]]) -> None:
    """Show the agents' lags, largest first."""
    lag.clear()
    for count, agent in lags[:AGENTS_MAX]:
        lag.labels(agent).set(count)
    lag.labels("").set(sum(count for count, _ in lags[AGENTS_MAX:]))
