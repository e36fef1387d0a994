"""[plugins]: which plugins run, and their limits."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Delay = Annotated[float, Meta(ge=0)]
NotNegative = Annotated[int, Meta(ge=0)]
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
    """[plugins]: code that runs on every message, each plugin in its own process. The plugins are
    listed in [[plugins.use]]."""

    enabled: bool = True  # false: no plugin runs
    urls: bool = True  # attach web addresses in messages to topics; [[plugins.use]] can override it
    require_isolation: bool = True  # false: run plugins even if they could read .agentlip/
    uid: NotNegative = 65534  # user id of plugins if the appliance runs as root
    gid: NotNegative = 65534  # group id of plugins if the appliance runs as root
    timeout_seconds: Seconds = 5.0  # seconds for one message; then the process is killed
    load_seconds: Seconds = 15.0  # seconds to start the process and load its module
    memory_bytes: Positive = 128 * 1024 * 1024  # bytes of address space of one process
    cpu_seconds: Positive = 60  # CPU seconds of one process; it is replaced at half of them
    processes_max: Positive = 64  # processes and threads of a plugin with `subprocesses = true`
    file_bytes: NotNegative = 0  # size limit in bytes for files a plugin writes
    module_bytes_max: Positive = 1024 * 1024  # bytes of a module's source code
    output_bytes_max: Positive = 256 * 1024  # bytes of output for one message
    items_max: Positive = 100  # enrichments or attachments that one plugin returns for one message
    debounce_seconds: Delay = 1.0  # seconds between an edit and its processing; edits restart them
    debounce_seconds_max: Delay = 10.0  # longest delay in seconds after the first of several edits
    pending_max: Positive = 1000  # messages read from the log and not processed yet
    failures_max: Positive = 5  # consecutive failures before a plugin pauses
    pause_seconds: Seconds = 30.0  # seconds of the first pause; then one message is tried
    pause_seconds_max: Seconds = 600.0  # longest pause in seconds; each pause doubles up to it
    idle_seconds: Seconds = 60.0  # seconds without work before a plugin's process is ended
    slow_seconds: Seconds = 1.0  # seconds for one message after which a warning is logged
    cursor_seconds: Seconds = 1.0  # seconds between stores of a cursor that passed nothing relevant
    poll_seconds: Seconds = 0.1  # seconds that new messages wait to be processed as a batch
    lag_warning_events: Positive = 10_000  # lag in events above which the doctor warns
    use: tuple[PluginSettings, ...] = ()  # the plugins, in order: docs/how-to/plugins.md

    @property
    def all(self) -> tuple[PluginSettings, ...]:
        """The plugins of `use`, after the built-in `urls` unless it is off or listed there."""
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
