"""Renders the page of all commands from the command lines themselves."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.main import get_command

from appliance import cli, cli_daemon
from ops.markdown import code, page, table

SHARED = frozenset({"--workspace", "--json", "--jsonl", "--wide", "--help"})
"""Options that nearly all commands have; people describe each above the generated part."""


def render() -> str:
    """Render an index of the commands, then each command with usage and options.

    The text does not depend on the terminal's width or on the machine.
    """
    apps = {"agentlip": cli.app, "agentlipd": cli_daemon.app}
    listed = [row for name, app in apps.items() for row in commands(get_command(app), name)]
    index = [(f"[{code(name)}](#{name.replace(' ', '-')})", text_of(command.help)[0])
             for name, command, _ in listed if name.count(" ") == 1]  # fmt: skip
    return page([table(("Command", "Effect"), index), *(section(*row) for row in listed)])


def commands(command: Any, name: str, above: Any = None) -> Iterator[tuple[str, Any, Any]]:
    """Yield each visible command with full name and context, groups before members."""
    context = typer.Context(command, info_name=name.rpartition(" ")[2], parent=above)
    yield name, command, context
    for member in getattr(command, "list_commands", lambda _: ())(context):
        below = command.get_command(context, member)
        if not below.hidden:
            yield from commands(below, f"{name} {member}", context)


def section(name: str, command: Any, context: Any) -> str:
    depth = min(name.count(" ") + 1, 3)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [
        (shown_names(each, context), each.help or "", shown_default(each), code(each.envvar or ""))
        for each in command.params
        if not each.hidden and SHARED.isdisjoint(each.opts)
    ]
    options = table(("Argument or option", "Meaning", "Default", "Variable"), rows) if rows else ""
    parts = [
        f"{'#' * (depth + 1)} {name}",
        *text_of(command.help),
        f"```text\n{usage}\n```",
        options,
    ]
    return "\n\n".join(filter(None, parts))


def text_of(text: str | None) -> Sequence[str]:
    """Return the paragraphs of a help text, with examples as code."""
    paragraphs = (" ".join(each.split()) for each in re.split(r"\n\s*\n", text or ""))
    return [re.sub(r"^Example: (.+)$", r"Example:\n\n```sh\n\1\n```", each) for each in paragraphs]


def shown_names(parameter: Any, context: Any) -> str:
    """Return the names as callers write each, with the value's kind, and mark required ones."""
    if parameter.param_type_name == "argument":
        return code(parameter.make_metavar(context))
    names = [*parameter.opts, *parameter.secondary_opts]
    value = "" if parameter.is_flag or parameter.count else f" {parameter.make_metavar(context)}"
    needed = " (required)" if parameter.required else ""
    return ", ".join(map(code, [*names[:-1], names[-1] + value])) + needed


def shown_default(parameter: Any) -> str:
    default = parameter.default
    return "" if default in (None, False, True) or callable(default) else code(str(default))
