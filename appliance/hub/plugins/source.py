"""A plugin's source: found below the workspace and read once, or one of the built-ins.

What is run is what was read here; the process it runs in never opens the file.
"""

import hashlib
import os
import stat
from pathlib import Path

import msgspec

from appliance.hub.plugins.settings import PluginSettings
from appliance.kernel.datadir import DIRECTORY

BUILTIN = Path(__file__).parent / "builtin"
# A text that every message has in which such a built-in finds anything: it never sees others.
NEEDED = {"urls": "://"}


class BadSource(Exception):
    """Why there is nothing to run, as a sentence."""


class Source(msgspec.Struct, frozen=True):
    text: str
    digest: str


def read(plugin: PluginSettings, workspace: Path, bytes_max: int) -> Source:
    """Raises BadSource."""
    if (plugin.module is None) == (plugin.builtin is None):
        raise BadSource("it needs either a module or a builtin")
    if plugin.builtin is not None:
        return _source((BUILTIN / f"{plugin.builtin}.py").read_bytes())
    assert plugin.module is not None
    return _source(_read_below(workspace, plugin.module, bytes_max))


def _source(data: bytes) -> Source:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadSource("its module is not UTF-8") from None
    return Source(text, hashlib.sha256(data).hexdigest()[:12])


def _read_below(workspace: Path, module: str, bytes_max: int) -> bytes:
    """The file's bytes. Links are followed as far as they stay below the workspace and out of
    its data; then the way is walked again without following any, so none can be put there."""
    root = workspace.resolve()
    try:
        real = (root / module).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise BadSource(f"there is no file {module} in the workspace") from None
    if not real.is_relative_to(root) or real == root:
        raise BadSource(f"{module} leads out of the workspace")
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
            raise BadSource(f"{module} is no file")
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise BadSource(f"{module} is longer than plugins.module_bytes_max")
    return data
