"""The current [doctor] section in agentlip.toml, for a long-running process."""

from pathlib import Path

from appliance.checks.sections import section
from appliance.checks.settings import DoctorSettings


class CurrentSettings:
    """A reader that loads the file again after a change. While the file can't be read, the last
    settings stay."""

    def __init__(self, settings: DoctorSettings, file: Path) -> None:
        self._settings = settings
        self._file = file
        self._seen = self._version()

    def get(self) -> DoctorSettings:
        version = self._version()
        if version != self._seen:
            self._seen = version
            # The check `settings.file` reports invalid settings.
            self._settings = section(self._file, "doctor", DoctorSettings) or self._settings
        return self._settings

    def _version(self) -> tuple[int, int, int] | None:
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
