"""The forecast as a part of the appliance, whichever roles are on."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from appliance.forecast.loops import GrowthSampler
from appliance.forecast.resources import routes
from appliance.forecast.service import GrowthSamples
from appliance.forecast.wire import Forecast
from appliance.host import Host
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.threads import in_thread
from appliance.kernel.writer import file_bytes

FILE = "growth.json"


class ForecastNeeds(msgspec.Struct, frozen=True):
    """`folders`: by what they contain, with the command that reduces it; "": none does."""

    folders: Mapping[str, tuple[Path, str]]
    stores: tuple[str, ...]


class ForecastSubsystem(Subsystem):
    name = "forecast"

    def __init__(self, host: Host, needs: ForecastNeeds) -> None:
        self._datadir = host.datadir
        self._needs = needs
        folders = {what: folder for what, (folder, _) in needs.folders.items()}
        self._samples = GrowthSamples(host.datadir.dir / FILE, folders, self._store_bytes)
        self.loops = (GrowthSampler(self._samples, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self._forecast)

    def _forecast(self) -> Forecast:
        reducible = {what: row for what, row in self._needs.folders.items() if row[1]}
        forecast: Forecast = in_thread(self._samples.forecast, reducible)
        return forecast

    def _store_bytes(self) -> dict[str, int]:
        """The size of each store with its write-ahead log."""
        files = {name: self._datadir.database(name) for name in self._needs.stores}
        return {name: file_bytes(path) + file_bytes(path, "-wal") for name, path in files.items()}
