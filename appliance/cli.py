"""Defines the two command lines: `agentlip` for people and agents, `agentlipd` for the daemon.

A command's module is imported only when the command runs, to keep `agentlip` fast.
"""

import atexit
import gc
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

gc.set_threshold(50_000)  # imports make many objects, and no garbage
atexit.register(gc.freeze)  # the interpreter's last search for garbage takes 10 ms

import typer
from typer.core import TyperGroup
from typer.main import get_command

from appliance import __version__
from appliance.cli_support import CommandGroup, Session, global_flags, run
from appliance.commands import COMMANDS

LAZY_COMMANDS = {name: row for rows in COMMANDS.values() for name, row in rows.items()}
OWN = "Workspace"  # the heading for the commands in this file
# Suggestions for commands that users expect at the top level.
SUGGESTIONS = {"send": ("outbox send", "msg send"), "restore": ("agentlip backup restore",)}
SUGGESTIONS |= {name: (f"agentlipd {name}",) for name in ("up", "down", "restart", "reset")}


class Root(TyperGroup):
    """A group whose subcommands may be in modules that are not imported yet."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *LAZY_COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        registered = super().get_command(ctx, cmd_name)
        if registered is not None or cmd_name not in LAZY_COMMANDS:
            return registered
        module, _, name = LAZY_COMMANDS[cmd_name][0].partition(":")
        command = get_command(getattr(import_module(module), name))
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            names = get_close_matches(args[0], [*SUGGESTIONS, *self.list_commands(ctx)])
            names = [args[0]] if args[0] in SUGGESTIONS else names
            near = [text for name in names for text in SUGGESTIONS.get(name, (name,))]
            meant = f". Did you mean {', '.join(map(repr, near))}?" if near else ""
            ctx.fail(f"no such command {args[0]!r}{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        own = [(name, self.commands[name].get_short_help_str(200)) for name in self.commands]
        for title, rows in COMMANDS.items():
            listed = [(name, text) for name, (_, text) in rows.items()]
            with formatter.section(title):
                formatter.write_dl([*own, *listed] if title == OWN else listed)


app = CommandGroup(
    cls=Root,
    help="Coordination for agents: channels, topics, messages, a durable event log.\n\n"
    "Exit codes: 0 success, 1 error, 2 conflict, 3 no hub, not ready or no connection, "
    "4 token refused.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


app.callback()(global_flags)


@app.command("version")
def show_version(session: Session) -> None:
    """Print the version, and this build's commit and date."""
    from appliance.build import commit, version_line

    revision, date = commit()
    answer = {"version": __version__, "commit": revision, "date": date}
    session.answer(answer, version_line())


@app.command("init")
def init(
    session: Session,
    directory: Annotated[
        Path | None, typer.Argument(help="Workspace directory (default: the current one).")
    ] = None,
) -> None:
    """Create a workspace: the directory .agentlip/ and its database."""
    from appliance.process.daemon import init_workspace

    datadir, made = init_workspace(session.workspace or directory or Path())
    what = "made a workspace in" if made else "there is a workspace in"
    session.answer(
        {"workspace": str(datadir.workspace), "created": made},
        f"{what} {datadir.workspace}",
    )


@app.command("status")
def status_line(session: Session) -> None:
    """Print one line: the hub's state, address and last event."""
    from appliance.process.status import exit_code, find_state, summary_line

    state = find_state(session.workspace)
    session.answer(state, summary_line(state))
    raise typer.Exit(exit_code(state))


def agentlip() -> None:
    sys.exit(main(sys.argv[1:]))


def agentlipd() -> None:
    sys.exit(main_daemon(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    return run(app, arguments, "agentlip")


def main_daemon(arguments: list[str]) -> int:
    from appliance.cli_daemon import app as daemon

    return run(daemon, arguments, "agentlipd")
