"""Metrics of hooks. Users name topics, so all `on-topic-…` hooks share one label."""

from appliance.kernel.metrics import counter, gauge, histogram

runs = counter("hooks_invocations_total", "Hook runs by outcome", ("hook", "outcome"))
"""outcome: ok, failed, timeout, not_started, dropped; hops: too many hooks have replied in a row"""

seconds = histogram(
    "hooks_duration_seconds",
    "Hook run duration",
    ("hook",),
    (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60),
)
acts = counter(
    "hooks_capability_calls_total",
    "Messages that hook runs requested to send",
    ("scope", "outcome"),
)
"""scope: reply, dm, topic; outcome: sent, refused, failed; scope any: too_many (ACTS_MAX)"""

unenforceable = counter(
    "hooks_unenforceable_total", "Hook runs with a network_policy that can't be enforced"
)
waiting = gauge("hooks_waiting_runs", "Hook runs waiting for a runner")
