"""Posts new broadcasts to online agents, before the agents' next heartbeats.

Each broadcast is posted once. Agents whose endpoint fails, or whose program is older, read the
broadcast with the next heartbeat.
"""

from contextlib import suppress

import msgspec

from appliance.kernel.clock import iso
from appliance.kernel.loop import Loop
from appliance.kernel.pool import GreenletPool, time_limit
from appliance.kernel.unreachable import Unreachable
from appliance.network.broadcast import BroadcastPosted
from appliance.relay import queries
from appliance.relay.rows import BroadcastRow
from appliance.relay.service import Relay
from appliance.sdk.network.post import tls_context
from appliance.web.address import BadWebhookUrl
from appliance.web.webhook_caller import WebhookCaller

POST_SECONDS = 2.0
NEW_MS = 60_000  # an older one was posted before the last start
BROADCASTS_MAX = 10  # in one round
POSTS_MAX = 50  # at a time
ATTEMPT_SECONDS = 5.0
ROUND_SECONDS = 300.0  # 1,000 agents whose endpoints hang need 100
FAILURES = (BadWebhookUrl, Unreachable, OSError, UnicodeError)


class BroadcastPoster(Loop):
    name = "relay_broadcasts"
    interval_seconds = POST_SECONDS

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay.clock, relay.log)
        self._relay = relay
        self._caller = WebhookCaller(relay.rules, tls=tls_context())
        self._last = 0

    def run_once(self, now_ms: int) -> dict[str, int]:
        rows = self._relay.store.read(
            queries.new_broadcasts, self._last, now_ms - NEW_MS, BROADCASTS_MAX
        )
        for row in rows:
            self._last = row.number
            self._post_to_all(row)
        return {"broadcasts": len(rows)}

    def _post_to_all(self, row: BroadcastRow) -> None:
        pool = GreenletPool(POSTS_MAX)
        with suppress(TimeoutError), time_limit(ROUND_SECONDS):
            for name, endpoint in self._relay.online_endpoints():
                pool.spawn(self._post, name, endpoint, row)
            pool.join()
        pool.kill(block=False)

    def _post(self, name: str, endpoint: str, row: BroadcastRow) -> None:
        body = BroadcastPosted(
            name, row.type, row.payload, row.sender, iso(row.created_ms), row.signature
        )
        headers = {"content-type": "application/json"}
        with suppress(*FAILURES), time_limit(ATTEMPT_SECONDS):
            self._caller.request(endpoint, headers, msgspec.json.encode(body))
