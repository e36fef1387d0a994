"""Writes the modules that list what the subsystems declare, so that the command line starts without
importing all of them: `just settings`.

A test compares.
"""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import typer
from typer.main import get_command

import appliance
import doctor
from ops.size import GENERATED

ROOT = Path(__file__).parents[1]
# The headings of `agentlip --help`, in their order.
HEADINGS = (
    "Workspace", "Messages", "People", "Work for consumers", "Teams of agents, without a server",
    "Other appliances", "Extensions", "Administration",
)  # fmt: skip


def render() -> dict[str, str]:
    """The text of each file, by its path from the root of the tree."""
    return {"appliance/commands.py": _format(render_commands())}


def render_commands() -> str:
    """Heading of `--help`: name of a command: module and Typer app, and what `--help` says."""
    table: dict[str, dict[str, tuple[str, str]]] = {heading: {} for heading in HEADINGS}
    for where, app in _apps():
        text = get_command(app).get_short_help_str(200)
        table[app.rich_help_panel][app.info.name] = (where, text)
    return f'{GENERATED} all cli*.py by `just settings`: the commands."""\n\nCOMMANDS = {table}'


def _apps() -> Iterator[tuple[str, typer.Typer]]:
    """All Typer apps with a name and a heading, and where they are."""
    for package in (appliance, doctor):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.rpartition(".")[2].startswith("cli"):
                for name, value in vars(import_module(module.name)).items():
                    if isinstance(value, typer.Typer) and isinstance(value.info.name, str):
                        yield f"{module.name}:{name}", value


def _format(text: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-"],
        cwd=ROOT, input=text, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


if __name__ == "__main__":
    for file, text in render().items():
        (ROOT / file).write_text(text, encoding="utf-8")
        print(file)
