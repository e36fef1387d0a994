"""The page of the commands of the worker bus, made from the command line itself."""

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

from appliance.bus import cli, cli_worker
from ops.markdown import page

COMMANDS = """\
The commands for a [team of agents](../how-to/team-of-agents.md). They work on the file of the
[worker bus](bus.md), without a server. All have `--workspace`, `--json`, `--jsonl` and `--help`.
Exit code 2 means that another agent has the claim, that the state does not allow the command, or
that there are conflicts; 3 that the bus is busy or the disk full ([all codes](errors.md))."""


def command_page() -> str:
    """The commands of the worker bus, as `typer utils docs` describes them."""
    sections = ["# Worker commands", COMMANDS]
    for name, app in (("agentlip worker", cli_worker.app), ("agentlip bus", cli.app)):
        group = get_command(app)
        context = typer.Context(group)
        sections.append(get_docs_for_click(obj=group, ctx=context, indent=1, name=name).strip())
    return page(sections)
