"""[plugins]: which plugins run, and within which limits."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Type = Literal["linkifier", "extractor"]


URLS: Literal["urls"] = "urls"


class PluginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[plugins.use]]: one plugin, from `module` (a file below the workspace) or `builtin`."""

    name: Name
    type: Type
    builtin: Literal["urls", "references"] | None = None
    module: str | None = None
    enabled: bool = True
    required: bool = False
    config: dict[str, Any] = {}
    timeout_seconds: Seconds | None = None
    memory_bytes: Positive | None = None
    network: bool = False
    subprocesses: bool = False
    read: tuple[str, ...] = ()


class PluginsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[plugins]: what may be run on every message, each in a process of its own. Which:
    [[plugins.use]]."""

    enabled: bool = True  # false: none of them runs
    urls: bool = True  # attach web addresses of messages to topics; [[plugins.use]] can replace it
    require_isolation: bool = True  # false: run them where nothing keeps them from .agentlip/ too
    uid: Annotated[int, Meta(ge=0)] = 65534  # they run as that user, where the appliance is root
    gid: Annotated[int, Meta(ge=0)] = 65534  # and as that group
    timeout_seconds: Seconds = 5.0  # by the clock on the wall, for one message; then killed
    load_seconds: Seconds = 15.0  # for starting the process and its module
    memory_bytes: Positive = 128 * 1024 * 1024  # address space of one process
    cpu_seconds: Positive = 60  # processor time of one process; it is replaced at half of it
    processes_max: Positive = 64  # processes and threads of a plugin with subprocesses = true
    file_bytes: Annotated[int, Meta(ge=0)] = 0  # longest file it may write, where it may at all
    module_bytes_max: Positive = 1024 * 1024  # of a module's source
    output_bytes_max: Positive = 256 * 1024  # of what is said about one message
    items_max: Positive = 100  # enrichments or attachments of one message, from one plugin
    debounce_seconds: Annotated[float, Meta(ge=0)] = 1.0  # after an edit; another starts it anew
    debounce_seconds_max: Annotated[float, Meta(ge=0)] = 10.0  # after the first of many edits
    pending_max: Positive = 1000  # messages taken from the log and not dealt with yet
    failures_max: Positive = 5  # in a row, and the plugin pauses
    pause_seconds: Seconds = 30.0  # its first pause; then one message is tried
    pause_seconds_max: Seconds = 600.0  # pauses double up to this
    idle_seconds: Seconds = 60.0  # a process without work for so long is ended
    slow_seconds: Seconds = 1.0  # longer than that for one message is worth a line in the log
    cursor_seconds: Seconds = 1.0  # how often a cursor is stored that passed nothing of note
    poll_seconds: Seconds = 0.1  # how long new messages wait to be processed as a batch
    lag_warning_events: Positive = 10_000  # behind the log by more: the doctor says so
    use: tuple[PluginSettings, ...] = ()  # the plugins, in order; docs/plugins.md

    @property
    def all(self) -> tuple[PluginSettings, ...]:
        """Those of `use`; before them the built-in for addresses, unless it is off or `use` has it,
        with a configuration of its own or not enabled."""
        for own in self.use:
            if own.name == URLS or own.builtin == URLS:
                return self.use
        return (
            (PluginSettings(URLS, "extractor", builtin=URLS), *self.use) if self.urls else self.use
        )

    def timeout_of(self, plugin: PluginSettings) -> float:
        return plugin.timeout_seconds or self.timeout_seconds

    def memory_of(self, plugin: PluginSettings) -> int:
        return plugin.memory_bytes or self.memory_bytes
