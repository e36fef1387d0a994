"""Keeps the newest entry for which a session was continued, so that no entry continues it twice."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from appliance.kernel.ownership import read_regular
from appliance.kernel.whole_file import write_whole

SESSIONS_MAX = 500
FOLDER = "agentlip/hooks"


class HookState:
    """A folder of the user with a file for each session. A file that can't be read or written
    continues nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def continues(self, session: str, entry: int) -> bool:
        """Return whether the entry is newer than all that continued the session, and keep it."""
        path = self._folder / hashlib.sha256(session.encode(errors="replace")).hexdigest()[:32]
        try:
            if self._last(path) >= entry:
                return False
            self._folder.mkdir(parents=True, exist_ok=True)
            self._prune()
            write_whole(path, str(entry).encode())
        except (OSError, ValueError):
            return False
        return True

    def _last(self, path: Path) -> int:
        return int(read_regular(path, 20)) if path.exists() else 0

    def _prune(self) -> None:
        """Remove the older half if there are too many."""
        files = [path for path in self._folder.iterdir() if not path.name.startswith(".")]
        if len(files) < SESSIONS_MAX:
            return
        for path in sorted(files, key=_read_modified)[: SESSIONS_MAX // 2]:
            path.unlink(missing_ok=True)


def _read_modified(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def state_folder() -> Path:
    """Return the user's folder for this state."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(home) / FOLDER
