"""The page of the commands of the worker bus, made from the command line itself."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from appliance.bus import cli, cli_worker
from ops.markdown import code, page, table

COMMANDS = """\
The commands for a [team of agents](../how-to/team-of-agents.md). They work on the file of the
[worker bus](bus.md), without a server. All have `--workspace`, `--json`, `--jsonl` and `--help`.
Exit code 2 means that another agent has the claim, that the state does not allow the command, or
that there are conflicts; 3 that the bus is busy or the disk full ([all codes](errors.md))."""
COMMON = {"--workspace", "--json", "--jsonl", "--help"}


def command_page() -> str:
    sections = ["# Worker commands", COMMANDS]
    for group, app in (("agentlip worker", cli_worker.app), ("agentlip bus", cli.app)):
        rows, options = [], dict[tuple[str, str], list[str]]()
        for name, command in leaves(get_command(app)):
            rows.append((code(" ".join([name, *arguments(command)])), first_sentence(command.help)))
            for option in command.params:
                if option.param_type_name == "option" and option.opts[0] not in COMMON:
                    options.setdefault((option.opts[0], option.help), []).append(name)
        sections += [f"## {group}", table(("Command", "Effect"), rows)]
        listed = [
            (code(name), ", ".join(map(code, of)), text) for (name, text), of in options.items()
        ]
        sections.append(table(("Option", "Of", "Meaning"), listed))
    return page(sections)


def leaves(command: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The commands below a group, with their names."""
    for name, below in command.commands.items():
        if hasattr(below, "commands"):
            yield from leaves(below, f"{prefix}{name} ")
        else:
            yield prefix + name, below


def arguments(command: Any) -> Iterator[str]:
    for argument in command.params:
        if argument.param_type_name == "argument":
            word = argument.name.rstrip("_").upper() + ("…" if argument.nargs < 0 else "")
            yield word if argument.required else f"[{word}]"


def first_sentence(text: str) -> str:
    return text.partition("\n\n")[0]
