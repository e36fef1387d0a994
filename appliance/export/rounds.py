"""Exports and compacts all logs in a workspace, one after the other."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from appliance.export import arrow_log_reader, compact, source, table_writer
from appliance.export.errors import ExportError
from appliance.export.exporter import Exporter, ExportRound, ProgressCallback, limits_of
from appliance.export.logs import LOGS
from appliance.export.manifests import SegmentDirectory
from appliance.export.publish import SegmentTarget, first_missing, publish
from appliance.export.settings import ExportSettings
from appliance.export.source import LogUnreadable
from appliance.kernel.clock import Clock
from appliance.workspace.datadir import DataDir


class Exports:
    """The exports for all logs into one directory, which `only_writer` locks."""

    def __init__(
        self,
        datadir: DataDir,
        settings: ExportSettings,
        clock: Clock,
        out: Path | None = None,
        target: SegmentTarget | None = None,
    ) -> None:
        """Open the directory. `out` overrides `export.export_dir`."""
        self.out = out or datadir.workspace / settings.export_dir
        self._datadir = datadir
        self._settings = settings
        self._clock = clock
        self._target = target
        self._directories = {kind: SegmentDirectory(self.out, kind) for kind in LOGS}

    @contextmanager
    def only_writer(self) -> Iterator[None]:
        with ExitStack() as locks:
            for directory in self._directories.values():
                locks.enter_context(directory.only_writer())
            yield

    def export(
        self, *, due_only: bool = False, progress: ProgressCallback | None = None
    ) -> list[ExportRound]:
        """Export each existing log to the end. If a log fails, the remaining logs are still
        exported, and then the error is raised."""
        results: list[ExportRound] = []
        failure: ExportError | LogUnreadable | None = None
        kind, limits = self._settings.export_format, limits_of(self._settings)
        table_writer.require(kind)
        for log in LOGS.values():
            directory = self._directories[log.kind]
            try:
                if source.newest_of(self._datadir, log) is None:
                    continue
                with arrow_log_reader.open_fast(self._datadir, kind, log) as reader:
                    exporter = Exporter(reader, directory, kind, limits, self._clock)
                    results.append(exporter.run(due_only=due_only, progress=progress))
            except (ExportError, LogUnreadable) as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return results

    def publish(self) -> None:
        """Send new segments to the target, if there is one."""
        if self._target is not None:
            for directory in self._directories.values():
                publish(directory, self._target)

    def compact(self) -> list[compact.Compacted]:
        """Compact each log's segments and remove segments past retention. With a target, only
        published ones are removed."""
        done, named = [], self._settings.archive_dir
        archive_dir = self._datadir.workspace / named if named else None
        for directory in self._directories.values():
            kept_from = first_missing(directory, self._target) if self._target else None
            done.append(
                compact.compact(directory, self._settings, self._clock, kept_from, archive_dir)
            )
        self.publish()
        return done
