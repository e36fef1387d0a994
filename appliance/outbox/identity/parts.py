"""The identity put together: loaded before whoever signs with it."""

from collections.abc import Mapping

from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.outbox.identity.resources import routes
from appliance.outbox.identity.service import Identity, Tell
from appliance.outbox.identity.settings import IdentitySettings
from appliance.web.route import Route


class ArchiveKeeper(Loop):
    """Forgets rotated-out keys when their grace time is over."""

    name = "identity_archive"
    interval_seconds = 3600.0

    def __init__(self, identity: Identity, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._identity = identity

    def run_once(self, now_ms: int) -> dict[str, int]:
        return {"forgotten": self._identity.tidy_archive()}


class Parts:
    def __init__(
        self,
        settings: IdentitySettings,
        datadir: DataDir,
        clock: Clock,
        log: Log,
        environment: Mapping[str, str],
        *,
        known_to_others: bool,
    ) -> None:
        self.identity = Identity.load(
            datadir, settings, clock, log, environment, known_to_others=known_to_others
        )
        self.loops: list[Loop] = [ArchiveKeeper(self.identity, clock, log)]

    def routes(self, tell: Tell) -> list[Route]:
        return routes(self.identity, tell)
