"""Checks for files in the data directory: permissions, owners, and logs."""

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.plans import OWNER_ONLY, restrict
from appliance.checks.sections import section
from appliance.checks.step import Step
from appliance.export.settings import ExportSettings
from appliance.kernel import meta
from appliance.kernel.ownership import user_name
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.workspace import manifest
from appliance.workspace.datadir import DIRECTORY, STORES
from appliance.workspace.migration import load
from doctor import schema_model

_MIB = 1024 * 1024
_OTHERS = 0o077
_OTHERS_WRITE = 0o022
_OTHERS_ENTER = 0o011
_LOG = "agentlipd.log"
_SECRETS = ("token", "server.json")
_ADOPTABLE = tuple(store for store, declared in DECLARATIONS.items() if declared.adapter)
_CHECKED_ELSEWHERE = "jobs"
_LISTED_MAX = 3  # more open files have one cause: a `chmod -R`, or a copy
_UNFINISHED = ".partial-"  # a backup that is made or verified, in a private directory
LOGS_BYTES_MAX = 100 * _MIB  # above this, somebody should look which file grows
FILES_MAX = 10_000  # data directory files whose permissions are read


class Entry(NamedTuple):
    """A file or directory, with its state. `name`: relative to the workspace."""

    name: str
    path: Path
    state: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.state.st_mode)


# -- permissions ------------------------------------------------------------------------------


def _private(context: Context) -> Iterator[Finding]:
    origin = _origin(context)
    if origin is None:
        return
    folder = context.datadir.dir
    reachable = bool(folder.stat().st_mode & _OTHERS_ENTER & _of_others(folder.stat()))
    findings = [_too_open(entry, reachable, origin == "own") for entry in open_entries(context)]
    if len(findings) <= _LISTED_MAX:
        yield from findings
        return
    names = ", ".join(finding.subject for finding in findings[:_LISTED_MAX])
    yield MANY_OPEN.finding(
        folder.name,
        f"other users on this machine may read or change {len(findings)} files and directories:"
        f" {names} …",
        severity=max(
            (finding.severity for finding in findings), key=lambda severity: severity.rank
        ),
    )


def open_entries(context: Context) -> Iterator[Entry]:
    """Yield the entries that other users may use."""
    folder = context.datadir.dir
    exported = _export_folders(context)
    running = context.lock().held
    for entry in _entries(context):
        if not entry.state.st_mode & _of_others(entry.state):
            continue
        parts = entry.path.relative_to(folder).parts
        if any(part.startswith(_UNFINISHED) for part in parts[:-1]):
            continue
        if parts[:1] == (_CHECKED_ELSEWHERE,):
            continue
        if not _may_be_open(entry, folder, exported) and (
            running or not _exists_while_open(entry.path)
        ):
            yield entry


def _close(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    """Restrict entries that are open to others. Subjects are paths relative to the workspace."""
    still_open = [entry.name for entry in open_entries(context)]
    for finding in findings:
        for name in still_open:
            if finding.problem == MANY_OPEN.name or finding.subject == name:
                yield restrict(finding.check, finding.subject, name, OWNER_ONLY)


def _too_open(entry: Entry, reachable: bool, own: bool) -> Finding:
    mode = stat.S_IMODE(entry.state.st_mode)
    changeable = entry.state.st_mode & _of_others(entry.state) & _OTHERS_WRITE
    is_secret = entry.path.parts[-2:] in {(DIRECTORY, name) for name in _SECRETS}
    severity = Severity.WARNING if own else Severity.INFO
    if is_secret or (changeable and reachable and own):
        severity = Severity.ERROR
    kind = "directory" if entry.is_folder else "file"
    verb = "read or change" if changeable else "read"
    protected = "" if reachable else "; now only the data directory's own mode prevents it"
    return TOO_OPEN.finding(
        entry.name,
        f"other users on this machine may {verb} the {kind} (mode {mode:04o}){protected}",
        f"chmod go= {shlex.quote(str(entry.path))}",
        severity=severity,
    )


def _of_others(state: os.stat_result) -> int:
    """Return the mode bits that give rights to other users. Group bits don't count if nobody
    else is in the group: many systems give each user a private group, and `umask 002`."""
    try:
        owner, group = pwd.getpwuid(state.st_uid).pw_name, grp.getgrgid(state.st_gid)
    except KeyError:  # unknown to the system, as in some containers
        return _OTHERS
    private = group.gr_name == owner and not {*group.gr_mem} - {owner}
    return _OTHERS & ~stat.S_IRWXG if private else _OTHERS


def _may_be_open(entry: Entry, folder: Path, exported: frozenset[Path]) -> bool:
    """Return whether the entry may be open to others: marks without content, exports, read-only
    mounts, and directories that are mount points, whose mode is the mount's."""
    if entry.path == folder:
        return _is_mount(folder)
    if entry.name.endswith(".suspect"):
        return True
    if entry.path.parent == folder / "locks" and not entry.state.st_mode & _OTHERS_WRITE:
        return True  # only a process id; the directory is checked
    if stat.S_ISLNK(entry.state.st_mode) or exported & {entry.path, *entry.path.parents}:
        return True
    return _read_only(entry.path) or (entry.is_folder and _is_mount(entry.path))


def _is_mount(folder: Path) -> bool:
    """Return whether the folder is a mount, including a bind mount inside one file system (`mount
    --bind`)."""
    if folder.is_mount():
        return True
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    # The fifth word is the mount point, with spaces in octal.
    points = {line.split(" ", 5)[4] for line in mounts.splitlines()}
    return str(folder.resolve()).replace(" ", "\\040") in points


def _exists_while_open(path: Path) -> bool:
    """Return whether the file belongs to an empty write-ahead log: the doctor's own reads create
    the file with the database's mode, and remove the file when they end."""
    database, separator, suffix = path.name.rpartition("-")
    if not separator or suffix not in ("wal", "shm"):
        return False
    try:
        return path.with_name(f"{database}-wal").stat().st_size == 0
    except OSError:
        return False


def _origin(context: Context) -> str | None:
    """Return `own` for a workspace that this program created, `adopted` if another program made
    its messages, and None if this program has not been started there."""
    if not (context.datadir.dir / manifest.FILE).exists() and not any(
        meta.read(connection, "x_schema") for _, connection in context.opened()
    ):
        return None
    for store, connection in context.opened(*_ADOPTABLE):
        if not schema_model.is_own(connection, load(store)[0]):
            return "adopted"
    return "own"


def _export_folders(context: Context) -> frozenset[Path]:
    settings = section(context.datadir.settings_file, "export", ExportSettings) or ExportSettings()
    workspace = context.datadir.workspace
    return frozenset({workspace / settings.export_dir, workspace / settings.gold_dir})


def _read_only(path: Path) -> bool:
    """Return whether the path is on a read-only mount, as secrets in containers are."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


# -- owners -----------------------------------------------------------------------------------


def _owner(context: Context) -> Iterator[Finding]:
    """Find files that the user can't use. Without root, the operating system decides. Root can
    use every file, so compare the file's owner with the stores' owner, which the appliance runs
    as."""
    if context.disk_problem == "read-only":
        return
    yield from _others_stores(context)
    owner = _owner_of_stores(context)
    own = os.geteuid() or owner
    if own is None or own == 0:
        return
    usable = (os.access(context.datadir.database(name), os.R_OK | os.W_OK) for name in STORES)
    if owner not in (None, own) and not any(usable):
        yield from _other_user(context, user_name(own), user_name(owner or 0))
        return
    groups = groups_of(own)
    yield from _summarize(context, _foreign(context, own, groups), f"sudo chown -R {own}")


def _foreign(context: Context, own: int, groups: frozenset[int]) -> Iterator[Finding]:
    for entry in _entries(context):
        if entry.state.st_uid == own or stat.S_ISLNK(entry.state.st_mode):
            continue
        needed = os.R_OK if _only_read(context, entry) else os.R_OK | os.W_OK
        if own == os.geteuid():
            allowed = os.access(entry.path, needed)
        else:
            allowed = may_use(entry.state, own, groups, needed)
        if not allowed:
            yield FOREIGN.finding(
                entry.name,
                f"it belongs to {user_name(entry.state.st_uid)}, so {user_name(own)}, whose"
                " appliance this is, can't use it",
                f"sudo chown -R {own} {context.datadir.dir}",
                severity=Severity.ERROR if own == os.geteuid() else Severity.WARNING,
            )


def _others_stores(context: Context) -> Iterator[Finding]:
    """Find usable stores with differing owners. Root, in another user's workspace, finds them as
    that user would."""
    owners, own = _owners_of_stores(context), os.geteuid()
    if len(set(owners.values())) < 2 or (own == 0 and context.datadir.dir.stat().st_uid):
        return
    findings = [
        OTHER_OWNER.finding(
            store,
            f"the file belongs to {user_name(owner)}, who can read and change it",
            f"{_sudo()}chown {own} {shlex.quote(str(context.datadir.database(store)))}",
        )
        for store, owner in owners.items()
        if owner not in (own, 0) and os.access(context.datadir.database(store), os.R_OK | os.W_OK)
    ]
    yield from _summarize(context, findings, f"{_sudo()}chown -R {own}")


def _sudo() -> str:
    return "" if os.geteuid() == 0 else "sudo "


def _summarize(context: Context, findings: Iterable[Finding], command: str) -> Iterator[Finding]:
    """Replace more than a few findings with one, because they have one cause."""
    listed = list(findings)
    if len(listed) <= _LISTED_MAX:
        yield from listed
        return
    names = ", ".join(finding.subject for finding in listed[:_LISTED_MAX])
    yield msgspec.structs.replace(
        listed[0],
        subject=context.datadir.dir.name,
        message=f"{len(listed)} files do not belong to this appliance's user: {names} …",
        hint=f"{command} {shlex.quote(str(context.datadir.dir))}",
    )


def _other_user(context: Context, own: str, owner: str) -> Iterator[Finding]:
    """Find that another user owns every store and none can be used: the doctor's user is wrong."""
    needed = [
        (entry, os.R_OK if _only_read(context, entry) else os.R_OK | os.W_OK)
        for entry in _entries(context)
        if not stat.S_ISLNK(entry.state.st_mode)
    ]
    denied = [entry for entry, rights in needed if not os.access(entry.path, rights)]
    if denied:
        yield OTHER_USER.finding(
            context.datadir.dir.name,
            f"it belongs to {owner}, and {own} can't use {len(denied)} files in it, so "
            "this report"
            " is incomplete",
            f"sudo -u {owner} agentlip doctor"
            f" --workspace {shlex.quote(str(context.datadir.workspace))}",
        )


def _owner_of_stores(context: Context) -> int | None:
    """Return the user who owns all stores, or else the data directory."""
    owners = set(_owners_of_stores(context).values())
    return context.datadir.dir.stat().st_uid if len(owners) > 1 else next(iter(owners), None)


def _owners_of_stores(context: Context) -> dict[str, int]:
    owners = {}
    for store in context.stores:
        with suppress(OSError):
            owners[store] = context.datadir.database(store).stat().st_uid
    return owners


def _only_read(context: Context, entry: Entry) -> bool:
    """Return whether the appliance only reads the file: a mounted token, keys, snapshots."""
    first = entry.path.relative_to(context.datadir.dir).parts[:1]
    secret = not entry.is_folder and first in (("token",), ("identity",), (".gitignore",))
    return secret or first == ("backups",) or _read_only(entry.path)


def may_use(state: os.stat_result, uid: int, groups: frozenset[int], needed: int) -> bool:
    """Return whether the mode gives that user the rights in `needed`, a sum of os.R_OK and
    os.W_OK."""
    shift = 6 if state.st_uid == uid else 3 if state.st_gid in groups else 0
    return (state.st_mode >> shift) & needed == needed


def groups_of(uid: int) -> frozenset[int]:
    """Return a user's groups, or none if the system doesn't know the user, as in some
    containers."""
    try:
        user = pwd.getpwuid(uid)
        return frozenset(os.getgrouplist(user.pw_name, user.pw_gid))
    except (KeyError, OSError):
        return frozenset()


# -- logs --------------------------------------------------------------------------------------


def _logs(context: Context) -> Iterator[Finding]:
    folder = context.datadir.logs
    if folder.is_file():
        sentence = "a file has the folder's name, so the appliance does not start"
        yield NO_FOLDER.finding(folder.name, sentence, f"mv {folder} {folder}.file; agentlipd up")
    if not folder.is_dir():
        return
    if context.disk_problem != "read-only":
        for path, needed in ((folder, os.W_OK | os.X_OK), (folder / _LOG, os.W_OK)):
            if path.exists() and not (os.access(path, needed) and path.stat().st_mode & 0o200):
                yield NOT_WRITABLE.finding(
                    path.name,
                    f"{user_name(os.geteuid())} can't write to it, so an appliance that is started"
                    " in the background does not start",
                    f"chmod u+rwX {path}; ls -ld {path}",
                )
                return
    yield from _too_large(context, folder)


def _too_large(context: Context, folder: Path) -> Iterator[Finding]:
    sizes = [entry.state.st_size for entry in _entries(context, folder) if not entry.is_folder]
    if sum(sizes) > LOGS_BYTES_MAX:
        yield TOO_LARGE.finding(
            folder.name,
            f"the logs take {sum(sizes) / _MIB:.0f} MiB in {len(sizes)} files, more than"
            f" {LOGS_BYTES_MAX / _MIB:.0f}",
            f"delete files that nobody needs: ls -lS {folder}",
        )


def _entries(context: Context, folder: Path | None = None) -> Iterator[Entry]:
    """Yield the directory and everything below, each directory before its content, at most
    FILES_MAX entries. Links are not followed."""
    workspace = context.datadir.workspace
    waiting = [folder or context.datadir.dir]
    left = FILES_MAX
    while waiting and left > 0:
        path = waiting.pop()
        try:
            # The data directory itself may be a link.
            state = path.stat() if path == context.datadir.dir else path.lstat()
            entry = Entry(str(path.relative_to(workspace)), path, state)
        except OSError:
            continue  # removed meanwhile, or in an unreadable directory, which is an entry too
        if entry.is_folder:
            with suppress(OSError):
                waiting += sorted(path.iterdir(), reverse=True)
        left -= 1
        yield entry


TOO_OPEN = Problem("too-open")
MANY_OPEN = Problem("many-open", hint="agentlip doctor repair --run host.private --yes")
FOREIGN = Problem("foreign")
OTHER_OWNER = Problem("other-owner", Severity.ERROR)
OTHER_USER = Problem("other-user", Severity.ERROR)
NOT_WRITABLE = Problem("not-writable")
NO_FOLDER = Problem("not-a-folder", Severity.ERROR)
TOO_LARGE = Problem("too-large")
CHECKS = (
    Check(
        name="host.private",
        inspects="only the owner can read and change the files in the data directory",
        find=_private, repair=_close, problems=(TOO_OPEN, MANY_OPEN),
    ),
    Check(
        name="host.owner",
        inspects="the files in the data directory belong to the user who runs the appliance",
        find=_owner,
        problems=(FOREIGN, OTHER_OWNER, OTHER_USER),
    ),
    Check(
        name="host.logs", inspects="the log directory can be written, and is not too large",
        find=_logs, problems=(NO_FOLDER, NOT_WRITABLE, TOO_LARGE),
    ),
)  # fmt: skip
