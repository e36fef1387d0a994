"""Every hint that a check gives in a test can be parsed by the command that it names."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer
from typer.main import get_command

from appliance import cli, cli_daemon
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.workspace import manifest

_JOINED = re.compile(r"; ?| && | \| ")


@cache
def program(name: str) -> Any:
    return get_command({"agentlip": cli.app, "agentlipd": cli_daemon.app}[name])


def commands_of(hint: str) -> Iterator[list[str]]:
    """The words of each of our commands in a hint, without a comment."""
    for part in _JOINED.split(hint.partition(" # ")[0]):
        text = part.rpartition(": ")[2]
        if re.match(r"agentlipd? ", text):
            yield shlex.split(text)


def parse(words: list[str]) -> None:
    """Parse a command as it does itself. Raises what it raises for a name, option or value that it
    does not know."""
    name, *rest = words
    command, context = program(name), None
    while True:
        context = command.make_context(name, list(rest), parent=context)
        if not hasattr(command, "list_commands") or not context.args + context._protected_args:
            break
        left = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, left)
    path, given = context.command_path, context.params
    manifest.check_names(given.get("accept_loss") or ())
    if path in ("agentlip recover", "agentlip doctor clear"):
        assert given["store"] in DECLARATIONS, words


def check_hint(hint: str) -> None:
    for words in commands_of(hint):
        try:
            parse(words)
        except typer.Exit:
            pass
        except Exception as error:
            raise AssertionError(f"the hint does not work: {hint}") from error
