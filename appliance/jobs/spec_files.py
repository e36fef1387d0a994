"""Reads the jobs in `jobs/NAME.toml`. A wrong file is refused with line and reason."""

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from appliance.jobs import wire
from appliance.jobs.spec import SpecProblem, check_cycle, check_known, check_name, read_spec
from appliance.kernel.ownership import read_regular

Specs = Mapping[str, wire.JobSpec]
Known = Mapping[str, Collection[str]]
FOLDER = "jobs"
FILE_BYTES_MAX = 256 * 1024
FILES_MAX = 500
_TOML_LINE = re.compile(r" \(at line (\d+), column \d+\)| \(at end of document\)")


class SpecFile(msgspec.Struct, frozen=True):
    """A file's content: the `spec`, or the `error`."""

    name: str
    path: str  # below the workspace
    spec: wire.JobSpec | None = None
    error: wire.BadJobSpec | None = None

    @property
    def problem(self) -> str | None:
        return None if self.error is None else self.error.message


def read_folder(workspace: Path, known: Known | None = None) -> list[SpecFile]:
    """Return all files by name. Files after FILES_MAX are not read; the first of them has an
    error.

    With `known`, a file that names an unknown job, channel or mesh is refused: the API jobs are
    known for `after`, and the names for `where` by trigger source."""
    paths = sorted(Path(workspace, FOLDER).glob("*.toml"))
    files = [read_file(path) for path in paths[:FILES_MAX]]
    specs = {file.name: file.spec for file in files if file.spec is not None}
    if known is not None:
        known = {**known, "after": [*known["after"], *(file.name for file in files)]}
    files = [_check_names(workspace, file, specs, known) for file in files]
    for path in paths[FILES_MAX : FILES_MAX + 1]:
        reason = f"only the first {FILES_MAX} of {len(paths):,} files are read"
        shown = f"{FOLDER}/{path.name}"
        files.append(SpecFile(path.stem, shown, error=_problem(shown, 1, reason)))
    return files


def read_file(path: Path) -> SpecFile:
    shown, data = f"{FOLDER}/{path.name}", b""
    try:
        data = read_regular(path, FILE_BYTES_MAX + 1)
        spec = _read(path.stem, data)
    except SpecProblem as error:
        line, reason = line_of(data.decode("utf-8-sig", "replace"), error.path), str(error)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_LINE.search(str(error))
        line = int(match[1]) if match and match[1] else data.count(b"\n") + 1
        reason = _TOML_LINE.sub("", str(error))
    except UnicodeDecodeError:
        line, reason = 1, "it is not UTF-8"
    except OSError as error:
        line, reason = 1, error.strerror or type(error).__name__
    else:
        return SpecFile(path.stem, shown, spec)
    return SpecFile(path.stem, shown, error=_problem(shown, line, reason))


def _check_names(workspace: Path, file: SpecFile, specs: Specs, known: Known | None) -> SpecFile:
    try:
        check_cycle(file.name, specs)
        if file.spec is not None and known is not None:
            check_known("after", file.spec.after, known["after"])
            for number, trigger in enumerate(file.spec.on):
                if names := known.get(trigger.source):
                    check_known(f"on[{number}].where", [trigger.where or "*"], names)
    except SpecProblem as error:
        text = read_regular(workspace / file.path, FILE_BYTES_MAX).decode("utf-8-sig")
        problem = _problem(file.path, line_of(text, error.path), str(error))
        return msgspec.structs.replace(file, spec=None, error=problem)
    return file


def _problem(path: str, line: int, reason: str) -> wire.BadJobSpec:
    return wire.BadJobSpec(f"{path}, line {line}: {reason}", details={"file": path, "line": line})


def _read(name: str, data: bytes) -> wire.JobSpec:
    check_name(name)
    if len(data) > FILE_BYTES_MAX:
        raise SpecProblem("", f"it has more than {FILE_BYTES_MAX} bytes")
    return read_spec(tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n")))


def line_of(text: str, path: str) -> int:
    """Return the line with a field such as `backoff.factor` or `on[1].hub`; 1 if missing."""
    position = 0
    for name, index in re.findall(r"(\w+)(?:\[(\d+)\])?", path):
        key = rf"(?m)^[ \t]*(?:\[\[?[ \t]*)?(?:[\w.]+\.)?{name}\b|\b{name}[ \t]*="
        for _ in range(1 + int(index or 0)):
            match = re.compile(key).search(text, position)
            if match is None:
                break
            position = match.end()
    return text.count("\n", 0, position) + 1
