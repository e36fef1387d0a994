"""Reads plugin source code: a module below the workspace, read once, or a built-in.

The plugin's process gets the text that was read here and never opens the file.
"""

import hashlib
import os
import stat
from pathlib import Path

import msgspec

from appliance.hub.plugins.settings import PluginSettings
from appliance.workspace.datadir import DIRECTORY

BUILTIN = Path(__file__).parent / "builtin"
# A text without which a built-in finds nothing, and so gets no message.
NEEDED = {"urls": "://"}
MODULE_BYTES_MAX = 1024 * 1024


class BadSource(Exception):
    """Why a plugin has no source to run."""


class PluginSource(msgspec.Struct, frozen=True):
    text: str
    digest: str


def read(plugin: PluginSettings, workspace: Path) -> PluginSource:
    """Read the source. Raises BadSource."""
    if (plugin.module is None) == (plugin.builtin is None):
        raise BadSource("it needs either `module` or `builtin`")
    if plugin.builtin is not None:
        return _source((BUILTIN / f"{plugin.builtin}.py").read_bytes())
    assert plugin.module is not None
    return _source(_read_below(workspace, plugin.module, MODULE_BYTES_MAX))


def _source(data: bytes) -> PluginSource:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadSource("its module is not UTF-8") from None
    return PluginSource(text, hashlib.sha256(data).hexdigest()[:12])


def _read_below(workspace: Path, module: str, bytes_max: int) -> bytes:
    """Return the file's bytes. Links may only lead to files below the workspace and outside its
    data. The resolved path is then opened without following links, so none can be swapped in."""
    root = workspace.resolve()
    try:
        real = (root / module).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise BadSource(f"there is no file {module} in the workspace") from None
    if not real.is_relative_to(root) or real == root:
        raise BadSource(f"{module} is outside the workspace")
    steps = real.relative_to(root).parts
    if steps[0] == DIRECTORY or real.suffix != ".py":
        raise BadSource(f"{module} is not a .py file outside {DIRECTORY}/")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for step in steps[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(step, flags, dir_fd=here)
            os.close(here)
            here = below
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(steps[-1], flags, dir_fd=here)
    except OSError as error:
        raise BadSource(f"{module} can't be read: {error.strerror}") from None
    finally:
        os.close(here)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadSource(f"{module} is not a regular file")
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise BadSource(f"{module} is longer than {bytes_max:,} bytes")
    return data
