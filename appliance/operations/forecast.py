"""When disks will be full: samples for an hour and for two weeks, and the trend in them."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from appliance.host import Host
from appliance.kernel.clock import DAY_MS, HOUR_MS, Clock
from appliance.kernel.json_file import read_json
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.route import Operation, Route
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.threads import in_thread
from appliance.kernel.whole_file import write_whole
from appliance.kernel.writer import file_bytes
from appliance.operations.wire import (
    READ,
    DiskForecast,
    Forecast,
    ForecastQuery,
    ForecastRange,
    Reducible,
    StoreForecast,
    UsageSeries,
)
from appliance.web.responders import Responders, reply_with

SAMPLES_MAX = 14 * 24  # one an hour for two weeks; together below 200 KB
RECENT_MAX = 13  # one every five minutes for an hour, in memory
LATE_MS = 60_000  # a loop's round may come earlier than its interval by less
SPAN_MS_MIN = {"1h": HOUR_MS // 6, "14d": HOUR_MS - LATE_MS}  # less time would be noise
FILE_BYTES_MAX = 1024 * 1024
ENTRIES_MAX = 200_000  # files per folder that are counted
GROWTH_MIN = 1024.0  # bytes a day that count as growth


class GrowthSample(msgspec.Struct, frozen=True):
    """Disk usage and store sizes in bytes, by name."""

    at_ms: int
    values: dict[str, int]


class Disk(msgspec.Struct, frozen=True):
    """A file system. `name`: `disk:` and the first entry in `of`."""

    of: tuple[str, ...]
    free_bytes: int
    size_bytes: int

    @property
    def name(self) -> str:
        return f"disk:{self.of[0]}"


class GrowthSamples:
    """The growth history. `folders`: keyed by content. `stores` returns each store's size."""

    def __init__(
        self, file: Path, folders: Mapping[str, Path], stores: Callable[[], Mapping[str, int]]
    ) -> None:
        self._file = file
        self._folders = folders
        self._stores = stores
        self._samples = read_json(file, list[GrowthSample], FILE_BYTES_MAX) or []
        self._recent: list[GrowthSample] = []

    def sample(self, now_ms: int) -> None:
        """Add a sample, and store one an hour. A sample from the future, after the clock was set,
        is dropped."""
        values = {disk.name: disk.size_bytes - disk.free_bytes for disk in self._disks()}
        values |= self._stores()
        recent, kept = (
            [sample for sample in samples if sample.at_ms < now_ms]
            for samples in (self._recent, self._samples)
        )
        self._recent = [*recent, GrowthSample(now_ms, values)][-RECENT_MAX:]
        self._samples = kept
        if not kept or now_ms - kept[-1].at_ms >= HOUR_MS - LATE_MS:
            self._samples = [*kept, self._recent[-1]][-SAMPLES_MAX:]
            write_whole(self._file, msgspec.json.encode(self._samples))

    def forecast(
        self, reducible: Mapping[str, tuple[Path, str]], span: ForecastRange = "14d"
    ) -> Forecast:
        """Return the forecast. `reducible`: folders, and the commands that free their space."""
        samples = self._recent if span == "1h" else self._samples
        trend = partial(_trend, samples, SPAN_MS_MIN[span])
        disks = [
            DiskForecast(list(disk.of), disk.free_bytes, disk.size_bytes,
                         *trend(disk.name, disk.free_bytes))
            for disk in self._disks()
        ]  # fmt: skip
        free = disks[0].free_bytes if disks else 0
        stores = [
            StoreForecast(name, size, *trend(name, free)) for name, size in self._stores().items()
        ]
        rows = [
            Reducible(what, size, command)
            for what, (folder, command) in reducible.items()
            if (size := folder_bytes(folder))
        ]
        days = (samples[-1].at_ms - samples[0].at_ms) / DAY_MS if samples else 0.0
        rows.sort(key=lambda row: -row.bytes)
        names = [*(disk.name for disk in self._disks()), *(store.store for store in stores)]
        usage = [UsageSeries(name, [row.values.get(name) for row in samples]) for name in names]
        return Forecast(
            round(days, 2), disks, stores, rows, [row.at_ms for row in samples], usage
        )  # fmt: skip

    def _disks(self) -> Iterator[Disk]:
        """Yield one disk for each file system."""
        of: dict[int, list[str]] = {}
        for name, folder in self._folders.items():
            if folder.is_dir():
                of.setdefault(folder.stat().st_dev, []).append(name)
        for names in of.values():
            volume = os.statvfs(self._folders[names[0]])
            unit = volume.f_frsize
            yield Disk(tuple(names), volume.f_bavail * unit, volume.f_blocks * unit)


def _trend(
    samples: list[GrowthSample], span_ms_min: int, name: str, free_bytes: int
) -> tuple[float | None, float | None]:
    """Return the growth in bytes a day, and the days until `free_bytes` are used."""
    points = [(row.at_ms, row.values[name]) for row in samples if name in row.values]
    growth = slope(points, span_ms_min)
    if growth is None or growth < GROWTH_MIN:
        return growth, None
    return growth, round(free_bytes / growth, 1)


def slope(points: list[tuple[int, int]], span_ms_min: int) -> float | None:
    """Return the daily slope by least squares, or None if the points cover too little time."""
    if len(points) < 2 or points[-1][0] - points[0][0] < span_ms_min:
        return None
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    along = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return round(along / sum((x - mean_x) ** 2 for x, _ in points) * DAY_MS, 1)


def folder_bytes(folder: Path) -> int:
    """Return the total size for files in the folder, without entries beyond ENTRIES_MAX."""
    total = 0
    for parent, _, names in islice(os.walk(folder), ENTRIES_MAX):
        for name in names:
            try:
                total += os.lstat(Path(parent, name)).st_size
            except OSError:
                continue  # removed meanwhile
    return total


class GrowthSampler(Loop):
    name = "growth_sampler"
    interval_seconds = 300.0

    def __init__(self, samples: GrowthSamples, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._samples = samples
        self.nudge()  # the first sample is at the start

    def run_once(self, now_ms: int) -> dict[str, int]:
        try:
            in_thread(self._samples.sample, now_ms)
        except OSError as error:  # a full disk: the sample is kept in memory
            self.log.debug("growth.json was not written", reason=error.strerror)
        return {"samples": 1}


def routes(forecast: Callable[[ForecastQuery], Forecast]) -> list[Route]:
    return [
        Route("/api/v1/forecast", Responders(get=reply_with(forecast)), {
            "GET": Operation(READ, query=ForecastQuery, reply=Forecast,
                             summary=("Forecast when disks will be full, with ways to reduce "
                                     "their use")),
        }),
    ]  # fmt: skip


FILE = "growth.json"


class ForecastNeeds(msgspec.Struct, frozen=True):
    """The forecast's inputs. `folders`: keyed by content, with the reducing command; "": no
    command."""

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

    def _forecast(self, query: ForecastQuery) -> Forecast:
        reducible = {what: row for what, row in self._needs.folders.items() if row[1]}
        forecast: Forecast = in_thread(self._samples.forecast, reducible, query.range)
        return forecast

    def _store_bytes(self) -> dict[str, int]:
        """Return each store's size with its write-ahead log."""
        files = {name: self._datadir.database(name) for name in self._needs.stores}
        return {name: file_bytes(path) + file_bytes(path, "-wal") for name, path in files.items()}
