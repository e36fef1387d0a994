"""Runs the loop that fetches the issuer's keys."""

from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.unreachable import Unreachable
from appliance.oidc import metrics
from appliance.oidc.keys import IssuerKeys


class KeyRefresh(Loop):
    """Fetches the keys every ten minutes, and when a token has an unknown key."""

    name = "oidc_keys"
    interval_seconds = 600.0
    runs_read_only = True

    def __init__(self, keys: IssuerKeys, clock: Clock, log: Log) -> None:
        super().__init__(clock, log, keys.wanted)
        self._keys = keys

    def run_once(self, _now_ms: int) -> dict[str, int]:
        try:
            self._keys.refresh()
        except Unreachable as error:
            metrics.refreshes.labels("failed").inc()
            self.log.warning("the issuer's keys could not be fetched", reason=str(error))
            return {"fetched": 0}
        metrics.refreshes.labels("done").inc()
        return {"fetched": 1}
