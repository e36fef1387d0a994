"""The process of one plugin: started when there is work, killed on timeouts and errors.

The process inherits no environment and no descriptors, and gets the plugin's source code only after
reporting sufficient isolation.
"""

import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import appliance
from appliance.child.line_process import (
    LineProcess,
    ProcessEnded,
    ResponseLate,
    ResponseTooLong,
    UnrequestedLine,
    spawn,
)
from appliance.hub.plugins import metrics, proof, wire
from appliance.hub.plugins.settings import NOBODY, PluginSettings, PluginsSettings
from appliance.hub.plugins.source import PluginSource
from appliance.kernel.log import Log

ROOT = str(Path(appliance.__file__).parents[1])
PROGRAM = (
    f"import sys; sys.path.insert(0, {ROOT!r});"
    f" from {__package__}.child import main;"
    f" sys.path.remove({ROOT!r}); main()"
)
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
VERSION_CHARACTERS_MAX = 100
REPLY_BYTES_MAX = 64 * 1024  # before there is any output
OUTPUT_BYTES_MAX = 256 * 1024  # for a message, whose text has 64 KiB
LOAD_SECONDS = 15.0  # to start the process and load the module, on a busy machine
CPU_SECONDS = 60  # a process is replaced at half the number
PROCESSES_MAX = 64  # with `subprocesses = true`; threads count too
_NAME = re.compile(r"\w{1,64}")


class PluginFailure(Exception):
    """One message's or start's failure. `passing`: not caused by the message, which is then
    retried; `where`: an error's class and line for the log, never its text."""

    def __init__(self, outcome: str, sentence: str, *, passing: bool = False, **where: Any) -> None:
        super().__init__(sentence)
        self.outcome = outcome
        self.message = sentence
        self.passing = passing
        self.where = where


class _WorkerReply(msgspec.Struct, frozen=True):
    error: str | None = None
    line: int | None = None
    cpu: float = 0.0
    version: str = ""
    isolation: wire.Isolation | None = None
    pid: int = 0
    outputs: msgspec.Raw = msgspec.Raw(b"[]")


_decode_reply = msgspec.json.Decoder(_WorkerReply).decode
_encode = msgspec.json.Encoder().encode


class PluginWorker:
    """At most one process. For one caller at a time."""

    def __init__(
        self,
        plugin: PluginSettings,
        source: PluginSource,
        settings: PluginsSettings,
        data_dir: Path,
        log: Log | None = None,
    ) -> None:
        self._plugin = plugin
        self._source = source
        self._settings = settings
        self._data_dir = data_dir
        self._log = log
        self._child: LineProcess | None = None
        self._replacement_due = False
        self.isolation: wire.Isolation | None = None
        self.version = ""

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.alive

    def start(self) -> None:
        """Start the process unless it runs. Raises PluginFailure without the required isolation."""
        if self._child is not None and self._child.check_alive():
            return
        metrics.starts.labels(self._plugin.name).inc()
        try:
            arguments = [sys.executable, "-I", "-B", "-c", PROGRAM]
            self._child = LineProcess(partial(spawn, arguments, ENVIRONMENT))
        except OSError as error:
            raise PluginFailure("start", "no process can be started", passing=True) from error
        reply = self._exchange(_encode(self._order()), LOAD_SECONDS, REPLY_BYTES_MAX, passing=True)
        assert self._child is not None
        self.isolation = proof.confirm(
            reply.isolation or wire.Isolation(), reply.pid, self._child.pid
        )
        missing = self._missing(self.isolation)
        if self._settings.require_isolation and missing:
            self.stop()
            raise PluginFailure("unisolated", missing, passing=True)
        reply = self._exchange(_encode(self._load()), LOAD_SECONDS, REPLY_BYTES_MAX, passing=True)
        if reply.error is not None:
            self.stop()
            raise PluginFailure(
                "load",
                _sentence("its module can't be loaded", reply),
                passing=True,
                **_where(reply),
            )
        # The plugin's code may have written this line.
        self.version = reply.version[:VERSION_CHARACTERS_MAX]
        self._replacement_due = False
        self._log_isolation(self.isolation)

    def ask(self, message: bytes) -> msgspec.Raw:
        """Return the plugin's output for a message, as unchecked JSON."""
        self.start()
        seconds = self._plugin.timeout_seconds
        reply = self._exchange(message, seconds, OUTPUT_BYTES_MAX + REPLY_BYTES_MAX)
        if reply.error == "TooLarge":
            raise PluginFailure(
                "too_large", f"the output is larger than {OUTPUT_BYTES_MAX:,} bytes"
            )
        if reply.error is not None:
            if reply.error == "MemoryError":
                self.stop()  # state unknown
            raise PluginFailure("error", _sentence("it raised an error", reply), **_where(reply))
        self._replacement_due = reply.cpu > CPU_SECONDS / 2
        return reply.outputs

    def rest(self) -> None:
        """End, between two messages, a process that has used half of its CPU time."""
        if self._replacement_due:
            self.stop()

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def _missing(self, isolation: wire.Isolation) -> str:
        """Return why the isolation isn't sufficient; empty if it is."""
        if isolation.write != "denied" or isolation.read != "denied":
            return "can't be kept from accessing .agentlip/: no Landlock, no other user"
        if isolation.uid == 0 and self._plugin.subprocesses:
            return (
                "a plugin with subprocesses can't run as root: user"
                f" {NOBODY} can't read the Python in {sys.base_prefix}"
            )
        return ""

    def _log_isolation(self, isolation: wire.Isolation) -> None:
        if self._log is None:
            return
        facts = {"plugin": self._plugin.name, **msgspec.structs.asdict(isolation)}
        gaps = wire.gaps(isolation, self._plugin.network, self._plugin.subprocesses)
        if gaps:
            self._log.warning("plugin started without full isolation", gaps=gaps, **facts)
        else:
            self._log.info("plugin started", **facts)

    def _exchange(
        self, line: bytes, seconds: float, bytes_max: int, passing: bool = False
    ) -> _WorkerReply:
        assert self._child is not None
        try:
            return _decode_reply(self._child.ask(line, seconds, bytes_max))
        except ResponseLate:
            raise PluginFailure(
                "timeout", f"no answer within {seconds:g} s", passing=passing
            ) from None
        except ProcessEnded:
            raise PluginFailure("crashed", "its process ended", passing=passing) from None
        except UnrequestedLine:
            raise PluginFailure("invalid", "its process sent a line without a request") from None
        except ResponseTooLong:
            raise PluginFailure(
                "too_large", f"the output is larger than {OUTPUT_BYTES_MAX:,} bytes"
            ) from None
        except (msgspec.DecodeError, RecursionError):
            self.stop()
            raise PluginFailure("invalid", "its process sent an invalid response") from None

    def _order(self) -> dict[str, Any]:
        plugin = self._plugin
        return {
            "data_dir": os.path.realpath(self._data_dir),
            "uid": NOBODY,
            "gid": NOBODY,
            "owner": os.geteuid(),
            "readable": [str(self._data_dir.parent / path) for path in plugin.read],
            "network": plugin.network,
            "subprocesses": plugin.subprocesses,
            "processes_max": PROCESSES_MAX,
            "memory_bytes": plugin.memory_bytes,
            "cpu_seconds": CPU_SECONDS,
            "file_bytes": 0,
        }

    def _load(self) -> dict[str, Any]:
        return {
            "name": self._plugin.name,
            "type": self._plugin.type,
            "source": self._source.text,
            "config": _encode(self._plugin.config).decode(),
            "output_bytes_max": OUTPUT_BYTES_MAX,
        }


def _where(reply: _WorkerReply) -> dict[str, Any]:
    name = reply.error if reply.error and _NAME.fullmatch(reply.error) else "Exception"
    return {"error_type": name, "line": reply.line}


def _sentence(beginning: str, reply: _WorkerReply) -> str:
    where = _where(reply)
    line = f", line {reply.line}" if reply.line is not None else ""
    return f"{beginning} ({where['error_type']}{line})"
