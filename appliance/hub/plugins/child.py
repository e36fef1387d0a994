"""The process a plugin runs in: one line per request and response. Standard library only.

`worker.py` starts it with a socket as standard input. The first line is an order: the process
splits into a supervisor and the plugin's process, which isolates itself and reports how. The second
line contains the module's source, which runs only then. Every further line is a message.
"""

import json
import os
import socket
import sys
import time
import types
from pathlib import Path
from typing import Any

from appliance.child import supervisor
from appliance.hub.plugins import sandbox

LINE_BYTES_MAX = 8 * 1024 * 1024
FUNCTIONS = {"linkifier": "enrich", "extractor": "extract"}


def main() -> None:
    raw = _take_socket()
    lines = raw.makefile("rb")
    order = json.loads(lines.readline(LINE_BYTES_MAX) or b"null")
    if order is None:
        return
    own_namespace, watched = supervisor.split(raw.fileno(), subprocesses=order["subprocesses"])
    isolation = sandbox.enter(order, watched, own_namespace)
    _answer(raw, {"isolation": isolation, "pid": _pid()})
    load = json.loads(lines.readline(LINE_BYTES_MAX) or b"null")
    if load is None:
        return
    sandbox.hide()
    filename = f"<plugin {load['name']}>"
    module = types.ModuleType(load["name"])
    try:
        function = _load(module, filename, load)
    except BaseException as error:
        _answer(raw, _error_report(error, filename))
        return
    _answer(raw, {"version": str(getattr(module, "VERSION", ""))[:100]})
    while line := lines.readline(LINE_BYTES_MAX):
        raw.sendall(_work(function, line, load, filename) + b"\n")


def _take_socket() -> socket.socket:
    """Move the socket away from standard input and close all other descriptors."""
    duplicate = os.dup(0)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for descriptor in range(3, 256):
        if descriptor != duplicate:
            try:
                os.close(descriptor)
            except OSError:
                continue
    raw = socket.socket(fileno=duplicate)
    raw.setblocking(True)  # the parent created a non-blocking one
    return raw


def _pid() -> int:
    """Return the pid outside this process's own PID namespace, if it has one."""
    try:
        return int(Path("/proc/self").readlink().name)
    except (OSError, ValueError):
        return os.getpid()


def _load(module: types.ModuleType, filename: str, load: dict[str, Any]) -> Any:
    code = compile(load["source"], filename, "exec", dont_inherit=True)
    sys.modules[module.__name__] = module  # needed by dataclasses
    exec(code, module.__dict__)
    function = getattr(module, FUNCTIONS[load["type"]], None)
    if not callable(function):
        raise LookupError(f"no function {FUNCTIONS[load['type']]}")
    return function


def _work(function: Any, line: bytes, load: dict[str, Any], filename: str) -> bytes:
    try:
        # Decoded for each call, so that a plugin can't change what the next call gets.
        outputs = function(json.loads(line), json.loads(load["config"]))
        if not isinstance(outputs, list):
            return json.dumps({"error": "NotAList"}).encode()
        text = json.dumps(outputs, allow_nan=False, separators=(",", ":"))
        if len(text) > load["output_bytes_max"]:
            return json.dumps({"error": "TooLarge"}).encode()
        return f'{{"cpu":{time.process_time()},"outputs":{text}}}'.encode()
    except BaseException as error:
        return json.dumps(_error_report(error, filename)).encode()


def _error_report(error: BaseException, filename: str) -> dict[str, Any]:
    """Return an error's class and line, without the text, which may quote a message."""
    at = error.lineno if isinstance(error, SyntaxError) and error.filename == filename else None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == filename:
            at = step.tb_lineno
        step = step.tb_next
    return {"error": type(error).__name__, "line": at}


def _answer(raw: socket.socket, value: dict[str, Any]) -> None:
    raw.sendall(json.dumps(value).encode() + b"\n")


if __name__ == "__main__":
    main()
