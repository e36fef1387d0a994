"""Decides whose files a process may use: no other user's workspace as root, and no other user's
links."""

import errno
import os
import pwd
import shlex
import stat
from pathlib import Path

from appliance.kernel.errors import Forbidden

SMALL_FILE_BYTES_MAX = 65_536


class WorkspaceNotTrusted(Forbidden):
    code = "WORKSPACE_NOT_TRUSTED"
    default_message = "the workspace belongs to another user"
    default_hint = "if you trust the folder, name it with '--workspace DIR'"


def refuse_other_owner(workspace: Path, data: Path, *, as_root: bool = False) -> None:
    """Refuse another user's workspace; call before a start's first write. Raises
    WorkspaceNotTrusted.

    Root would write wherever the folders' owner points files to, and so needs `as_root` for such
    folders. For other users the system's permissions are the limit. Other users' links are always
    refused, also for files that SQLite opens.
    """
    us = os.geteuid()
    for path in (workspace, data):
        owner = _owner(path)
        if us == 0 and not as_root and owner not in (None, 0):
            raise _refusal(path, owner, workspace)
    for path in (data, *_entries(data)):
        owner = _owner(path)
        if path.is_symlink() and owner not in (None, 0, us):
            raise WorkspaceNotTrusted(
                f"{path} is a link that belongs to {user_name(owner)}",
                details={"path": str(path)},
                hint=f"ls -ld {shlex.quote(str(path))}; remove the link, or make it your own",
            )


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file, which is created with `mode`, and no link. Never wait for a FIFO's
    other end. Raise OSError on failure."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file")
    return descriptor


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Return a file's first bytes. Raise OSError, also for a folder and a FIFO, without waiting."""
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(bytes_max)


def read_small(path: Path) -> bytes | None:
    """Return a small file's content, up to a limit; None if unreadable or not a file."""
    try:
        return read_regular(path, SMALL_FILE_BYTES_MAX)
    except OSError:
        return None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO would wait for a writer


def user_name(uid: int) -> str:
    """Return a user's name, or `user UID` if the system doesn't know the user, as in some
    containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _refusal(path: Path, owner: int, workspace: Path) -> WorkspaceNotTrusted:
    name = user_name(owner)
    sudo = f"sudo -u {name}" if " " not in name else f"sudo -u '#{owner}'"
    return WorkspaceNotTrusted(
        f"{path} belongs to {name}, and root does not start an appliance there",
        details={"path": str(path), "uid": owner},
        hint=f"{sudo} agentlipd up --workspace {shlex.quote(str(workspace))}; if root should own"
        " the data, add --as-root",
    )


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def _entries(data: Path) -> list[Path]:
    try:
        return list(data.iterdir())
    except OSError:
        return []
