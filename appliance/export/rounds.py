"""Exports and compacts all logs of a workspace, one after the other."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from appliance.export import arrow_log_reader, compact, source
from appliance.export.errors import ExportError, LibraryMissing, OutputBusy, OutputNotWritable
from appliance.export.exporter import (
    EXPORTED,
    Exporter,
    ExportRound,
    ProgressCallback,
    limits_of,
)
from appliance.export.logs import EVENTS, LOGS, ExportedLog
from appliance.export.manifests import SegmentDirectory
from appliance.export.publish import SegmentTarget, first_missing, publish
from appliance.export.settings import ExportSettings, Format
from appliance.export.source import LogUnreadable
from appliance.kernel.clock import Clock
from appliance.workspace.datadir import DataDir

NO_LOG = "no log yet"  # its subsystem never ran, or a version that wrote none
_ENDS_ALL = (OutputBusy, OutputNotWritable, LibraryMissing)


class Exports:
    """The exports of some logs into one directory, locked while the context is open."""

    def __init__(
        self,
        datadir: DataDir,
        out: Path,
        settings: ExportSettings,
        clock: Clock,
        logs: Iterable[ExportedLog] = tuple(LOGS.values()),
        target: SegmentTarget | None = None,
    ) -> None:
        self._datadir = datadir
        self._out = out
        self._settings = settings
        self._clock = clock
        self._logs = list(logs)
        self._target = target
        self._locks = ExitStack()
        self._locked: dict[str, SegmentDirectory] = {}

    @contextmanager
    def only_writer(self) -> Iterator[None]:
        with self._locks:
            yield
        self._locked.clear()

    def export(
        self,
        format_name: Format,
        *,
        due_only: bool = False,
        tell: ProgressCallback | None = None,
    ) -> list[ExportRound]:
        """Export each log to its end. If a log can't be exported, the others are, and then its
        error is raised."""
        results: list[ExportRound] = []
        failure: ExportError | LogUnreadable | None = None
        for log in self._logs:
            try:
                number = source.newest_of(self._datadir, log)
                if number is None or not (number or self._has_folder(log)):
                    state = NO_LOG if number is None else EXPORTED
                    results.append(ExportRound(log=log.kind, state=state))
                    continue
                directory = self._lock(log)
                with arrow_log_reader.open_fast(self._datadir, format_name, log) as reader:
                    limits = limits_of(self._settings)
                    exporter = Exporter(reader, directory, format_name, limits, self._clock)
                    results.append(exporter.run(due_only=due_only, tell=tell))
            except _ENDS_ALL:
                raise
            except (ExportError, LogUnreadable) as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return results

    def publish(self) -> int:
        """Send new segments to the target, if there is one; returns their number."""
        if self._target is None:
            return 0
        return sum(
            publish(self._lock(log), self._target) for log in self._logs if self._has_folder(log)
        )

    def tidy(self) -> list[compact.Tidied]:
        """Compact the segments of each log and remove those past their retention. With a target,
        only published ones are removed."""
        done = []
        for log in filter(self._has_folder, self._logs):
            directory = self._lock(log)
            kept_from = self._target and first_missing(directory, self._target)
            done.append(compact.tidy(directory, self._settings, self._clock, kept_from or ""))
        self.publish()
        return done

    def _has_folder(self, log: ExportedLog) -> bool:
        """The hub's is always created; the others when they get their first segment."""
        return log is EVENTS or SegmentDirectory(self._out, log.kind).folder.is_dir()

    def _lock(self, log: ExportedLog) -> SegmentDirectory:
        if log.kind not in self._locked:
            directory = SegmentDirectory(self._out, log.kind)
            self._locks.enter_context(directory.only_writer())
            self._locked[log.kind] = directory
        return self._locked[log.kind]
