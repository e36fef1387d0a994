"""A support bundle: facts about a workspace for somebody else, without its contents.

Every file in it is a JSON value or text that was redacted. Rows of stores, tokens and keys are
never read into it. Works with the appliance running, stopped or hung, and with damaged stores.
"""

import gzip
import hashlib
import io
import os
import platform
import sqlite3
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from appliance import __version__
from appliance.build import commit
from appliance.checks.check import Check
from appliance.checks.context import Context, size_of
from appliance.checks.settings import DoctorSettings
from appliance.kernel import meta
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Conflict, Unavailable
from appliance.kernel.whole_file import whole_file
from appliance.workspace.datadir import BESIDE, DataDir, pid_alive
from doctor import live, report, run
from doctor.redaction import Redaction, names_of, secrets_of
from doctor.settings_view import texts_of, view

FOLDER = "agentlip-bundle"
MANIFEST = f"{FOLDER}/manifest.json"
ENTRIES_MAX = 5_000
METRICS_BYTES_MAX = 8 * 1024 * 1024
_LOG_NAMES = ("agentlipd.log", "agentlipd.log.1")
_FACTS = ("schema_version", "x_schema", "x_compat", "x_id_order", "db_id", "x_store_id")
_PRAGMAS = ("page_size", "page_count", "freelist_count", "journal_mode", "user_version")
_NEVER = (
    "rows of the stores",
    "contents of the token file, of server.json's token and of the identity folder",
    "values of settings that are texts, except words from a fixed set",
    "texts in fields of the log that this program does not write itself",
)
BUNDLE_BYTES_MAX = 64 * 1024 * 1024  # a support bundle's files together; more is left out
BUNDLE_EXPENSIVE_BYTES_MAX = 256 * 1024 * 1024  # larger workspaces get only cheap checks in it


class BundleExists(Conflict):
    code = "BUNDLE_EXISTS"
    default_message = "the file of the support bundle exists already"
    default_hint = "name another file: agentlip doctor bundle --out FILE"


class BundleNotWritten(Unavailable):
    code = "BUNDLE_NOT_WRITTEN"
    default_message = "the support bundle can't be written"
    default_hint = "name a file in another folder: agentlip doctor bundle --out FILE"


class BundledFile(msgspec.Struct, frozen=True):
    name: str
    bytes: int
    sha256: str


class BundleManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `manifest.json`; keys are only ever added.

    never      what a bundle never contains
    redacted   how often each kind of text was taken out of the files; 0 if it did not occur
    left_out   file → why it is not in the bundle
    """

    version: str
    created_at: str
    files: list[BundledFile]
    never: list[str]
    redacted: dict[str, int]
    left_out: dict[str, str]


Progress = Callable[[Check], None]


class Bundle:
    """Collects the files of one bundle in memory, up to BUNDLE_BYTES_MAX."""

    def __init__(self, context: Context, log_bytes: int) -> None:
        self._context = context
        self._datadir = context.datadir
        self._settings = context.settings
        self._log_bytes = log_bytes
        self._view, raw = view(self._datadir.settings_file, os.environ)
        secrets = secrets_of(context, raw) | texts_of(self._view, raw)
        self._redaction = Redaction(secrets, names_of(self._datadir))
        self._files: dict[str, bytes] = {}
        self._left_out: dict[str, str] = {}
        self.size_of = 0

    def collect(self, progress: Progress) -> BundleManifest:
        parts: tuple[tuple[str, Callable[[], Any]], ...] = (
            ("versions.json", versions),
            ("settings.json", lambda: self._view),
            ("files.json", lambda: list(listing(self._datadir))),
            ("locks.json", lambda: locks(self._context)),
            ("stores.json", lambda: {name: self._store(name) for name in self._context.stores}),
            ("doctor.json", lambda: self._doctor(progress)),
        )
        for name, collect in parts:
            try:
                value = msgspec.to_builtins(collect())
            except (OSError, sqlite3.Error) as error:
                self._left_out[name] = type(error).__name__
                continue
            self._add(name, msgspec.json.format(
                msgspec.json.encode(self._redaction.value(value)), indent=1
            ))  # fmt: skip
        self._add_metrics()
        for name in _LOG_NAMES:
            self._add_log(name)
        return BundleManifest(
            version=__version__,
            created_at=iso(self._context.clock.now_ms()),
            files=[
                BundledFile(name, len(content), hashlib.sha256(content).hexdigest())
                for name, content in self._files.items()
            ],
            never=list(_NEVER),
            redacted=dict(sorted(self._redaction.counts.items())),
            left_out=self._left_out,
        )

    def write(self, manifest: BundleManifest, out: Path) -> None:
        """Writes the archive, readable by the owner only, completely or not at all."""
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        try:
            with (
                whole_file(out) as file,
                gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w") as archive,
            ):
                for name, content in {MANIFEST: text, **self._files}.items():
                    entry = tarfile.TarInfo(name)
                    entry.size, entry.mode = len(content), 0o600
                    entry.mtime = self._context.clock.now_ms() // 1000
                    archive.addfile(entry, io.BytesIO(content))
                if os.path.lexists(out):
                    raise BundleExists(f"{out} exists already")
        except OSError as error:
            raise BundleNotWritten(f"{out}: {error.strerror or error}") from error

    def _add(self, name: str, content: bytes) -> None:
        if self._redaction.finds_secret(content):
            self._left_out[name] = "a secret was found in it after redaction"
        elif self.size_of + len(content) > BUNDLE_BYTES_MAX:
            self._left_out[name] = f"the bundle would exceed {BUNDLE_BYTES_MAX:,} bytes"
        else:
            self.size_of += len(content)
            self._files[f"{FOLDER}/{name}"] = content

    def _doctor(self, progress: Progress) -> report.DoctorReport:
        """All checks, or the cheap ones of a large workspace."""
        size = sum(size_of(self._datadir.database(store)) for store in self._context.stores)
        everything = size <= BUNDLE_EXPENSIVE_BYTES_MAX
        if not everything:
            self._left_out["expensive checks"] = (
                f"the stores are larger than {BUNDLE_EXPENSIVE_BYTES_MAX:,} bytes"
            )
        facts = report.facts_of(self._context)
        outcomes = run.examine(self._context, run.select((), everything), progress)
        return report.report(facts, outcomes)

    def _store(self, store: str) -> dict[str, Any]:
        """Schema, sizes and numbers of rows of a store; or why it can't be read."""
        database = self._datadir.database(store)
        facts: dict[str, Any] = {
            "file": database.name,
            "bytes": {suffix or "database": size_of(database.with_name(database.name + suffix))
                      for suffix in ("", *BESIDE)},
            "suspect": self._datadir.suspect_file(store).exists(),
        }  # fmt: skip
        if not database.exists():
            return facts | {"error": "missing"}
        self._context.set_deadline(self._settings.check_seconds_max)
        try:
            connection = self._context.open(store)
            for pragma in _PRAGMAS:
                facts[pragma] = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
            facts["meta"] = {key: meta.read(connection, key) for key in _FACTS}
            facts["schema"] = connection.execute(
                "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
            ).fetchall()
            facts["rows"] = {}
            for kind, name, _, _ in facts["schema"]:
                if kind == "table":
                    facts["rows"][name] = _count(connection, name)
        except sqlite3.Error as error:
            facts["error"] = str(error)
        return facts

    def _add_metrics(self) -> None:
        server = self._context.server()
        if server is None or not self._context.lock().held:
            self._left_out["metrics.txt"] = "the appliance is not running"
            return
        try:
            text = live.read_metrics(self._datadir, server, live.ASK_SECONDS_MAX, METRICS_BYTES_MAX)
        except live.NotAnswering as error:
            self._left_out["metrics.txt"] = self._redaction.text(str(error))
            return
        self._add("metrics.txt", self._redaction.text(text).encode())

    def _add_log(self, name: str) -> None:
        path = self._datadir.logs / name
        try:
            with path.open("rb") as file:
                begin = max(0, path.stat().st_size - self._log_bytes)
                file.seek(begin)
                lines = file.read(self._log_bytes).split(b"\n")
        except OSError as error:
            self._left_out[f"logs/{name}"] = type(error).__name__
            return
        kept = (self._redaction.log_line(line) for line in lines[1 if begin else 0 :] if line)
        self._add(f"logs/{name}", b"".join(line + b"\n" for line in kept if line is not None))


def make(
    datadir: DataDir, settings: DoctorSettings, clock: Clock, off: frozenset[str], out: Path,
    log_bytes: int, progress: Progress = lambda _check: None,
) -> BundleManifest:  # fmt: skip
    """Writes a support bundle to the new file `out`. Raises BundleExists, BundleNotWritten."""
    if os.path.lexists(out):
        raise BundleExists(f"{out} exists already")
    with run.context_outside(datadir, settings, clock, off) as context:
        bundle = Bundle(context, log_bytes)
        manifest = bundle.collect(progress)
        bundle.write(manifest, out.absolute())
    return manifest


def versions() -> dict[str, Any]:
    libraries = {}
    for name in sorted({*(metadata.requires("agentlip") or ())} if _is_installed() else ()):
        library = name.replace(";", " ").replace("[", " ").split()[0].rstrip("<>=!~0123456789.,")
        with suppress(metadata.PackageNotFoundError):
            libraries[library] = metadata.version(library)
    uname = os.uname()
    return {
        "agentlip": __version__,
        "commit": " ".join(commit()),
        "python": sys.version.split()[0],
        "implementation": platform.python_implementation(),
        "sqlite": sqlite3.sqlite_version,
        "libraries": libraries,
        "system": {"name": uname.sysname, "release": uname.release, "machine": uname.machine},
        "cpus": os.cpu_count(),
    }


def _is_installed() -> bool:
    try:
        metadata.distribution("agentlip")
    except metadata.PackageNotFoundError:
        return False
    return True


def listing(datadir: DataDir) -> Iterator[dict[str, Any]]:
    """Names, modes, owners, sizes and times of the files of the data directory."""
    count = 0
    for path in (datadir.settings_file, datadir.dir, *sorted(_below(datadir.dir))):
        with suppress(OSError):
            stat = path.lstat()
            yield {
                "name": str(path.relative_to(datadir.workspace)),
                "mode": f"{stat.st_mode:o}",
                "uid": stat.st_uid,
                "gid": stat.st_gid,
                "bytes": stat.st_size,
                "modified_at": iso(int(stat.st_mtime * 1000)),
            }
            count += 1
        if count >= ENTRIES_MAX:
            return


def _below(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        yield from (Path(root) / name for name in (*folders, *files))


def locks(context: Context) -> dict[str, Any]:
    """The lock of the writer, and what the running appliance wrote about itself."""
    view_of_lock, server = context.lock(), context.server()
    written = view_of_lock.written
    facts: dict[str, Any] = {
        "exists": view_of_lock.exists,
        "held": view_of_lock.held,
        "written": written,
        "pid_alive": None if written is None else pid_alive(written.pid),
        "not_answering": context.live_error,
        "facts": dict(context.live or {}),
    }
    if server is not None:
        facts["server"] = {
            "instance_id": server.instance_id,
            "port": server.port,
            "pid": server.pid,
            "pid_alive": pid_alive(server.pid),
            "started_at": server.started_at,
            "protocol_version": server.protocol_version,
        }
    return facts


def _count(connection: sqlite3.Connection, table: str) -> int | None:
    """None if the table can't be counted within the time limit of a cheap check."""
    table = table.replace('"', '""')
    try:
        (count,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
    except sqlite3.Error:
        return None
    return int(count)
