"""The process of one plugin: started when there is work, killed when it is late or ill.

It gets no environment, no descriptors and no path of the module: its source comes as a line,
after it has told how tightly it is shut in and that was found enough.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

import appliance
from appliance.hub.plugins import metrics, proof, wire
from appliance.hub.plugins.settings import PluginSettings, PluginsSettings
from appliance.hub.plugins.source import Source
from appliance.kernel.line_process import (
    ChildEnded,
    ChildLate,
    ChildTalks,
    ChildUnasked,
    LineChild,
)
from appliance.kernel.log import Log

ROOT = str(Path(appliance.__file__).parents[1])
PROGRAM = (
    f"import sys; sys.path.insert(0, {ROOT!r});"
    " from appliance.hub.plugins.child import main;"
    f" sys.path.remove({ROOT!r}); main()"
)
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
VERSION_CHARACTERS_MAX = 100
REPLY_BYTES_MAX = 64 * 1024  # before there is any output
_NAME = re.compile(r"\w{1,64}")


class Failure(Exception):
    """What went wrong with one message or one start. `passing`: not the message's fault, so it
    is tried again; `where` is for the log: a class and a line, never a text."""

    def __init__(self, outcome: str, sentence: str, *, passing: bool = False, **where: Any) -> None:
        super().__init__(sentence)
        self.outcome = outcome
        self.sentence = sentence
        self.passing = passing
        self.where = where


class _Told(msgspec.Struct, frozen=True):
    error: str | None = None
    line: int | None = None
    cpu: float = 0.0
    version: str = ""
    isolation: wire.Isolation | None = None
    pid: int = 0
    outputs: msgspec.Raw = msgspec.Raw(b"[]")


_told = msgspec.json.Decoder(_Told).decode
_encode = msgspec.json.Encoder().encode


class Worker:
    """At most one process at a time. For one caller at a time."""

    def __init__(
        self,
        plugin: PluginSettings,
        source: Source,
        settings: PluginsSettings,
        data_dir: Path,
        log: Log | None = None,
    ) -> None:
        self._plugin = plugin
        self._source = source
        self._settings = settings
        self._data_dir = data_dir
        self._log = log
        self._child: LineChild | None = None
        self._tired = False
        self.isolation: wire.Isolation | None = None
        self.version = ""

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.alive

    def start(self) -> None:
        """Unless it runs. Raises Failure; what is not shut in as wanted never gets the source."""
        if self._child is not None and self._child.look():
            return
        metrics.starts.labels(self._plugin.name).inc()
        try:
            self._child = LineChild([sys.executable, "-I", "-B", "-c", PROGRAM], ENVIRONMENT)
        except OSError as error:
            raise Failure("start", "no process can be started", passing=True) from error
        seconds, most = self._settings.load_seconds, REPLY_BYTES_MAX
        told = self._exchange(_encode(self._order()), seconds, most, passing=True)
        assert self._child is not None
        self.isolation = proof.confirmed(
            told.isolation or wire.Isolation(), told.pid, self._child.pid
        )
        missing = self._missing(self.isolation)
        if self._settings.require_isolation and missing:
            self.stop()
            raise Failure("unisolated", missing, passing=True)
        told = self._exchange(_encode(self._load()), seconds, most, passing=True)
        if told.error is not None:
            self.stop()
            raise Failure(
                "load", _sentence("its module can't be loaded", told), passing=True, **_where(told)
            )
        self.version = told.version[:VERSION_CHARACTERS_MAX]  # by then it is the plugin that talks
        self._tired = False
        self._say_so(self.isolation)

    def ask(self, message: bytes) -> msgspec.Raw:
        """What it says about a message, as JSON that nobody has looked at yet."""
        self.start()
        seconds = self._settings.timeout_of(self._plugin)
        most = self._settings.output_bytes_max + REPLY_BYTES_MAX
        told = self._exchange(message, seconds, most)
        if told.error == "TooLarge":
            raise Failure("too_large", "it said more than plugins.output_bytes_max")
        if told.error is not None:
            if told.error == "MemoryError":
                self.stop()  # nobody knows what it left half done
            raise Failure("error", _sentence("it raised an error", told), **_where(told))
        self._tired = told.cpu > self._settings.cpu_seconds / 2
        return told.outputs

    def rest(self) -> None:
        """Between two messages: one that has used up half of its processor time is replaced."""
        if self._tired:
            self.stop()

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def _missing(self, isolation: wire.Isolation) -> str:
        """What it may not run without, as a sentence."""
        if isolation.write == "denied" and isolation.read == "denied":
            if isolation.uid == 0 and self._plugin.subprocesses:
                return (
                    "a plugin with subprocesses may not run as root: user"
                    f" {self._settings.uid} can't read the Python in {sys.base_prefix}"
                )
            return ""
        sentence = "nothing here keeps it from reading or writing into .agentlip/: no Landlock"
        if isolation.uid == 0 and self._settings.uid:
            return (
                f"{sentence}, and it would stay root: user {self._settings.uid} can't read the"
                f" Python in {sys.base_prefix}"
            )
        return f"{sentence}, no other user"

    def _say_so(self, isolation: wire.Isolation) -> None:
        if self._log is None:
            return
        facts = {"plugin": self._plugin.name, **msgspec.structs.asdict(isolation)}
        gaps = wire.gaps(isolation, self._plugin.network, self._plugin.subprocesses)
        if gaps:
            self._log.warning("plugin started without full isolation", gaps=gaps, **facts)
        else:
            self._log.info("plugin started", **facts)

    def _exchange(self, line: bytes, seconds: float, most: int, passing: bool = False) -> _Told:
        assert self._child is not None
        try:
            return _told(self._child.ask(line, seconds, most))
        except ChildLate:
            raise Failure("timeout", f"no answer within {seconds:g} s", passing=passing) from None
        except ChildEnded:
            raise Failure("crashed", "its process ended", passing=passing) from None
        except ChildUnasked:
            raise Failure("invalid", "its process had answered without being asked") from None
        except ChildTalks:
            raise Failure("too_large", "it said more than plugins.output_bytes_max") from None
        except (msgspec.DecodeError, RecursionError):
            self.stop()
            raise Failure("invalid", "its process answered something else") from None

    def _order(self) -> dict[str, Any]:
        plugin, settings = self._plugin, self._settings
        return {
            "data_dir": os.path.realpath(self._data_dir),
            "uid": settings.uid,
            "gid": settings.gid,
            "owner": os.geteuid(),
            "readable": [str(self._data_dir.parent / path) for path in plugin.read],
            "network": plugin.network,
            "subprocesses": plugin.subprocesses,
            "processes_max": settings.processes_max,
            "memory_bytes": settings.memory_of(plugin),
            "cpu_seconds": settings.cpu_seconds,
            "file_bytes": settings.file_bytes,
        }

    def _load(self) -> dict[str, Any]:
        return {
            "name": self._plugin.name,
            "type": self._plugin.type,
            "source": self._source.text,
            "config": _encode(self._plugin.config).decode(),
            "output_bytes_max": self._settings.output_bytes_max,
        }


def _where(told: _Told) -> dict[str, Any]:
    name = told.error if told.error and _NAME.fullmatch(told.error) else "Exception"
    return {"error_type": name, "line": told.line}


def _sentence(beginning: str, told: _Told) -> str:
    where = _where(told)
    line = f", line {told.line}" if told.line is not None else ""
    return f"{beginning} ({where['error_type']}{line})"
