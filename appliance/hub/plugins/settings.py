"""[plugins]: which plugins run, and their limits."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Type = Literal["linkifier", "extractor"]


URLS: Literal["urls"] = "urls"
NOBODY = 65534  # plugins' user and group, owners of no file, if the appliance runs as root


class PluginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[plugins.use]]: one plugin, from `module` (a file below the workspace) or `builtin`."""

    name: Name
    type: Type
    builtin: Literal["urls", "references"] | None = None
    module: str | None = None
    enabled: bool = True
    required: bool = False
    config: dict[str, Any] = {}
    timeout_seconds: Seconds = 5.0
    memory_bytes: Positive = 128 * 1024 * 1024
    network: bool = False
    subprocesses: bool = False
    read: tuple[str, ...] = ()


class PluginsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[plugins]: code that runs on every message, each plugin in its own process. The plugins are
    listed in [[plugins.use]]."""

    urls: bool = True  # attach web addresses in messages to topics; overridden by [[plugins.use]]
    require_isolation: bool = True  # false: run plugins even if .agentlip/ is readable for them
    use: tuple[PluginSettings, ...] = ()  # the plugins, in order: docs/how-to/plugins.md

    @property
    def all(self) -> tuple[PluginSettings, ...]:
        """Return the plugins in `use`, after the built-in `urls` unless it is off or listed
        there."""
        for own in self.use:
            if own.name == URLS or own.builtin == URLS:
                return self.use
        return (
            (PluginSettings(URLS, "extractor", builtin=URLS), *self.use) if self.urls else self.use
        )
