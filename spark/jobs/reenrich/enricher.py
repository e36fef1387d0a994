"""Runs a linkifier on messages. Pure, standard library only: it runs on executors.

The file of the plugin is a text here: executors never open it.
"""

import hashlib
import json
import signal
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any, NamedTuple

Enrich = Callable[[dict[str, Any], dict[str, Any]], Any]
FILENAME = "<plugin>"


class PluginText(NamedTuple):
    """The source code of a plugin, and the limits for each message."""

    name: str
    source: str
    config: str
    items_max: int
    output_bytes_max: int
    seconds_max: float


class MessageResult(NamedTuple):
    """`line` is the row of the file of changes; with an error there is none."""

    line: str | None
    findings: int = 0
    error: str | None = None
    error_line: int | None = None


def load(plugin: PluginText) -> tuple[Enrich, str]:
    """The function `enrich` and the VERSION of the module. Raises what the module raises."""
    module = types.ModuleType(plugin.name)
    sys.modules[module.__name__] = module  # dataclasses need it
    exec(compile(plugin.source, FILENAME, "exec", dont_inherit=True), module.__dict__)
    function = getattr(module, "enrich", None)
    if not callable(function):
        raise LookupError("no function enrich")
    return function, str(getattr(module, "VERSION", ""))[:100]


def enrich(function: Enrich, plugin: PluginText, message: dict[str, Any]) -> MessageResult:
    """The findings in a message. An error of the plugin is a result, with its class and line."""
    content = message["content_raw"]
    try:
        with _deadline(plugin.seconds_max):
            findings = function(dict(message), json.loads(plugin.config))
        refused = _refused(findings, content, plugin)
        if refused is not None:
            return MessageResult(None, error=refused)
        text = json.dumps(findings, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except Exception as error:
        return MessageResult(None, 0, type(error).__name__, _line(error))
    if len(text.encode()) > plugin.output_bytes_max:
        return MessageResult(None, error="TooLarge")
    row = {
        "message_id": message["id"],
        "version": message["version"],
        "content_sha256": hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest(),
        "enrichments": findings,
    }
    line = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return MessageResult(line, len(findings))


def _refused(findings: Any, content: str, plugin: PluginText) -> str | None:
    """Why the output is refused as a whole; the hub checks the rest."""
    if not isinstance(findings, list):
        return "NotAList"
    if len(findings) > plugin.items_max:
        return "TooManyItems"
    for finding in findings:
        try:
            start, end = finding["span"]["start"], finding["span"]["end"]
            sound = isinstance(finding["kind"], str) and 0 <= start < end <= len(content)
        except (TypeError, KeyError, AttributeError):
            sound = False
        if not sound:
            return "BadFinding"
    return None


class TookTooLong(Exception):
    """The plugin did not return in time."""


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Interrupt the block after `seconds`; only a process's main thread can be interrupted."""
    if current_thread() is not main_thread():
        yield
        return

    def interrupt(_number: int, _frame: Any) -> None:
        raise TookTooLong

    former = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def _line(error: Exception) -> int | None:
    """The line of the plugin that raised it. The text of an error may quote a message."""
    line, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == FILENAME:
            line = step.tb_lineno
        step = step.tb_next
    return line
