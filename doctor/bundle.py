"""A support bundle: facts about a workspace for somebody else, without the contents.

Every file in the bundle is a JSON value or a redacted log. Store rows, tokens and keys are never
included. Bundles work with the appliance running, stopped or hung, and with damaged stores.
"""

import gzip
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
from appliance.checks.context import Context
from appliance.checks.settings import DoctorSettings
from appliance.kernel import config
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError, Conflict, Unavailable
from appliance.kernel.whole_file import whole_file
from appliance.settings import Settings
from appliance.workspace.datadir import DataDir
from doctor import report, run
from doctor.redaction import Redaction, names_of, secrets_of
from doctor.settings_view import SettingsView, view, words_in

FOLDER = "agentlip-bundle"
ENTRIES_MAX = 5_000
LOG_BYTES = 1024 * 1024  # each log's newest
_LOG_NAMES = ("agentlipd.log", "agentlipd.log.1")


class BundleExists(Conflict):
    code = "BUNDLE_EXISTS"
    default_message = "the support bundle's file exists already"
    default_hint = "name another file: agentlip doctor bundle --out FILE"


class BundleNotWritten(Unavailable):
    code = "BUNDLE_NOT_WRITTEN"
    default_message = "the support bundle can't be written"
    default_hint = "name a file in another folder: agentlip doctor bundle --out FILE"


class SupportBundle(msgspec.Struct, frozen=True, kw_only=True):
    """A written bundle. `left_out`: file → why the bundle does not contain the file."""

    file: str
    files: list[str]
    left_out: dict[str, str]


def make(
    datadir: DataDir, settings: DoctorSettings, clock: Clock, off: frozenset[str], out: Path,
    progress: Callable[[Check], None] = lambda _check: None,
) -> SupportBundle:  # fmt: skip
    """Write a support bundle to the new file `out`. Raise BundleExists or BundleNotWritten."""
    if os.path.lexists(out):
        raise BundleExists(f"{out} exists already")
    files: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    with run.context_outside(datadir, settings, clock, off) as context:
        shown = _settings(datadir)
        redaction = _redaction(context, shown)
        parts: dict[str, Callable[[], Any]] = {
            "versions.json": lambda: versions(iso(clock.now_ms())),
            "settings.json": lambda: shown,
            "files.json": lambda: list(listing(datadir)),
            "doctor.json": lambda: _doctor(context, progress),
        }
        for name, collect in parts.items():
            try:
                value = redaction.value(msgspec.to_builtins(collect()))
            except (OSError, sqlite3.Error, ApplianceError) as error:
                left_out[name] = type(error).__name__
                continue
            files[name] = msgspec.json.format(msgspec.json.encode(value), indent=1)
    for name in _LOG_NAMES:
        try:
            files[f"logs/{name}"] = _log(datadir.logs / name, redaction)
        except OSError as error:
            left_out[f"logs/{name}"] = str(error.strerror)
    _write(out.absolute(), files, clock.now_ms() // 1000)
    return SupportBundle(file=str(out.absolute()), files=list(files), left_out=left_out)


def _settings(datadir: DataDir) -> SettingsView:
    """Return the settings, or nothing if they are not valid, which a check reports."""
    try:
        settings = config.load(Settings, datadir.settings_file, os.environ)
    except config.BadSettings:
        return SettingsView({})
    return view(datadir.settings_file, os.environ, settings, texts=False)


def _redaction(context: Context, shown: SettingsView) -> Redaction:
    """Build a redaction that also removes settings values, valid or not, unless `shown` has
    them."""
    file = context.datadir.settings_file
    given: list[Any] = [
        {".".join(names): value} for names, value in config.read_environment(os.environ, Settings)
    ]
    with suppress(config.BadSettings):
        given.append(config.read_toml(file))
    return Redaction(secrets_of(context, given) - words_in(shown), names_of(context.datadir))


def _doctor(context: Context, progress: Callable[[Check], None]) -> report.DoctorReport:
    facts = report.facts_of(context)
    return report.report(facts, run.examine(context, run.select((), False), progress))


def _log(path: Path, redaction: Redaction) -> bytes:
    """Return the newest lines that this program wrote. Raise OSError if reading fails."""
    with path.open("rb") as file:
        begin = max(0, path.stat().st_size - LOG_BYTES)
        file.seek(begin)
        lines = file.read(LOG_BYTES).split(b"\n")
    return b"".join(map(redaction.log_line, lines[1 if begin else 0 :]))


def _write(out: Path, files: dict[str, bytes], now_seconds: int) -> None:
    """Write the archive, readable by the owner only, completely or not at all."""
    try:
        with (
            whole_file(out) as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for name, content in files.items():
                entry = tarfile.TarInfo(f"{FOLDER}/{name}")
                entry.size, entry.mode, entry.mtime = len(content), 0o600, now_seconds
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise BundleNotWritten(f"{out}: {error.strerror or error}") from error


def versions(created_at: str) -> dict[str, Any]:
    uname = os.uname()
    return {
        "created_at": created_at,
        "agentlip": __version__,
        "commit": " ".join(commit()),
        "python": sys.version.split()[0],
        "implementation": platform.python_implementation(),
        "sqlite": sqlite3.sqlite_version,
        "libraries": {library.name: library.version for library in metadata.distributions()},
        "system": {"name": uname.sysname, "release": uname.release, "machine": uname.machine},
        "cpus": os.cpu_count(),
    }


def listing(datadir: DataDir) -> Iterator[dict[str, Any]]:
    """List names, modes, owners, sizes and times for the files in the data directory."""
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
