"""Defines what every subsystem gets from the process."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from appliance.child.command import Commands
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.store_errors import StoreSuspended
from appliance.kernel.wakeup import Wakeup
from appliance.kernel.writer import StoreSettings
from appliance.kernel.writerprocess import WriterProcess
from appliance.workspace.datadir import DataDir

Section = TypeVar("Section", bound=msgspec.Struct)


class Host(msgspec.Struct, frozen=True):
    """The process, as every subsystem gets it.

    served         the data folder, with empty files for damaged stores
    off            roles that don't run, with the setting that switches each off
    read_settings  reads the settings again
    settings_file  one of their sources
    doctor_due     set: the cheap checks run soon
    work_done      set by `note_work` after a backup, verification or job succeeded
    work_failed    set by `note_work` after one failed"""

    settings: msgspec.Struct
    read_settings: Callable[[], msgspec.Struct]
    off: Mapping[str, str]
    datadir: DataDir
    served: DataDir
    clock: Clock
    log: Log
    instance_id: str = ""
    damaged: Mapping[str, StoreSuspended] = MappingProxyType({})
    writers: WriterProcess | None = None  # None: no store is written
    settings_file: Path = Path("agentlip.toml")
    doctor_due: Wakeup = msgspec.field(default_factory=Wakeup)
    work_done: Wakeup = msgspec.field(default_factory=Wakeup)
    work_failed: Wakeup = msgspec.field(default_factory=Wakeup)
    commands: Commands = msgspec.field(default_factory=lambda: Commands(SystemClock()))

    def note_work(self, succeeded: bool) -> None:
        """Note how a backup, verification or job ended. A failure is checked soon."""
        (self.work_done if succeeded else self.work_failed).set()
        if not succeeded:
            self.doctor_due.set()

    def runs(self, role: str) -> bool:
        return role not in self.off

    def section(self, kind: type[Section]) -> Section:
        """Return the settings section that this struct describes."""
        return _section(self.settings, kind)

    def read_section(self, kind: type[Section]) -> Section:
        """Return the section as it is written now."""
        return _section(self.read_settings(), kind)

    def open_store(self, name: str, changed: Mapping[str, Any] | None = None, **more: Any) -> Store:
        """Open a store. `changed`: settings for this store alone; `more`: Store arguments."""
        settings = msgspec.structs.replace(self.section(StoreSettings), **(changed or {}))
        arguments = {"writers": self.writers, **more}
        path = self.served.database(name)
        return Store(name, path, settings, self.clock, self.log, **arguments)


def _section(settings: msgspec.Struct, kind: type[Section]) -> Section:
    sections = (getattr(settings, name) for name in settings.__struct_fields__)
    return next(section for section in sections if isinstance(section, kind))
