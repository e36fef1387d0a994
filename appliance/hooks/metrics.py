"""What hooks count. Topics are named by users, so every `on-topic-…` is one label."""

from appliance.kernel.metrics import counter, gauge, histogram

runs = counter("hook_invocations_total", "Runs of hooks", ("hook", "outcome"))
"""outcome: ok, failed, timeout, not_started, dropped; hops: a message came from too many hooks"""

seconds = histogram(
    "hook_duration_seconds", "Time of a run", ("hook",), (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60)
)
acts = counter("hook_capability_calls_total", "What runs asked to send", ("scope", "outcome"))
"""scope: reply, dm, topic; outcome: sent, refused, failed; scope any: too_many (hooks.acts_max)"""

unenforceable = counter(
    "hook_unenforceable_total", "Runs whose network_policy could not be enforced"
)
waiting = gauge("hook_waiting_runs", "Runs that wait for a free place")
