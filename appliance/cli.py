"""The two command lines: `agentlip` for people and agents, `agentlipd` for the daemon.

The module of a command is imported only when the command runs, to keep `agentlip` fast.
"""

import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from appliance import __version__
from appliance.cli_support import (
    Session,
    common,
    global_flags,
    run,
)

# heading of `--help`: name of a command: module and Typer app, one line for `--help`
COMMANDS = {
    "Workspace": {
        "doctor": ("doctor.cli:app", "Check the workspace and its hub for problems."),
        "ui": ("appliance.ui.cli:app", "Open the web UI, signed in by a one-time link."),
    },
    "Messages": {
        "channel": ("appliance.hub.cli:channels", "Channels: list, create."),
        "topic": ("appliance.hub.cli:topics", "Topics: list, create, rename."),
        "msg": (
            "appliance.hub.cli:messages",
            "Messages: send, tail, page, edit, delete, retopic.",
        ),
        "attachment": ("appliance.hub.cli_attachments:app", "Attachments of a topic: list, add."),
        "search": ("appliance.hub.cli_search:app", "Find messages by their words."),
        "listen": ("appliance.hub.cli_listen:app", "Follow the event stream."),
        "import": ("appliance.hub.cli_import:app", "Import messages from files: jsonl, mbox."),
    },
    "People": {
        "ask": (
            "appliance.ask.cli:app",
            "Questions to people: create, list, show, answer, cancel.",
        ),
    },
    "Work for consumers": {
        "courier": (
            "appliance.courier.cli:app",
            "Envelopes: enqueue, subscribe, stats, dead letters.",
        ),
    },
    "Teams of agents, without a server": {
        "bus": (
            "appliance.bus.cli:app",
            "A team of agents on one machine: messages, claims, cursors.",
        ),
        "worker": (
            "appliance.bus.cli_worker:app",
            "Tasks with branches and worktrees: spawn, start, done, approve, merge, status.",
        ),
    },
    "Other appliances, people": {
        "outbox": (
            "appliance.outbox.cli:app",
            "Sends to meshes and mail: send, list, inspect, redrive, drop, prune, export.",
        ),
        "inbox": (
            "appliance.inbox.cli:app",
            "Messages received from meshes: list, watch, topics.",
        ),
        "identity": (
            "appliance.identity.cli:app",
            "The member key: show, accept-host, remint, rotate.",
        ),
        "mesh": (
            "appliance.broker.cli:meshes",
            "Meshes of the broker: members, topics, queues, subscriptions.",
        ),
        "broker": ("appliance.broker.cli:app", "The broker: status, history, orphans."),
    },
    "Extensions": {
        "mcp": ("appliance.mcp.cli:app", "MCP for agents over standard input; mcp config CLIENT."),
        "webhook": (
            "appliance.hub.webhooks.cli:app",
            "Webhooks: create, list, show, update, delete, pending.",
        ),
        "plugin": ("appliance.hub.plugins.cli:app", "Plugins: list, found."),
        "re-enrich": (
            "appliance.hub.plugins.cli:re_enrich_app",
            "Have plugins go through the log again.",
        ),
        "re-extract": (
            "appliance.hub.plugins.cli:re_extract_app",
            "Have extractors look at a message again.",
        ),
    },
    "Administration": {
        "backup": ("appliance.backup.cli:app", "Backups: create, list, show, restore."),
        "recover": ("appliance.recovery.cli:app", "Get data out of a damaged store."),
        "migrate": (
            "appliance.upgrade.cli:migrate_app",
            "Migrate the stores to this version: --plan, --apply.",
        ),
        "upgrade": (
            "appliance.upgrade.cli:upgrade_app",
            "Check whether this version can open the workspace: --check.",
        ),
        "config": ("doctor.cli_config:app", "Settings: show, with where each comes from."),
        "token": ("appliance.tokens.cli:app", "Tokens: create, list, revoke, rotate."),
        "export": (
            "appliance.export.cli:app",
            "Export the log as closed segments, the tables as a snapshot.",
        ),
        "report": (
            "appliance.export.cli_report:app",
            "Reports from the results of Spark jobs: activity.",
        ),
        "archive": (
            "appliance.export.cli_archive:app",
            "The archive of old segments: verify, search.",
        ),
        "jobs": ("appliance.jobs.cli:app", "Batch jobs: their latest runs."),
    },
}
LAZY_COMMANDS = {name: row for rows in COMMANDS.values() for name, row in rows.items()}
OWN = "Workspace"  # the heading of the commands in this file
# Suggestions for commands that users expect at the top level.
SUGGESTIONS = {"send": ("outbox send", "msg send")}


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
            near = SUGGESTIONS.get(args[0]) or get_close_matches(args[0], self.list_commands(ctx))
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


app = typer.Typer(
    cls=Root,
    help="Coordination for agents: channels, topics, messages, a durable event log.\n\n"
    "Exit codes: 0 success, 1 error, 2 conflict, 3 no hub, not ready or no connection, "
    "4 token refused.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


app.callback()(global_flags)


@app.command("version")
@common
def show_version(session: Session) -> None:
    """Print the version, and the commit and date of this build."""
    from appliance.build import commit, version_line

    revision, date = commit()
    answer = {"version": __version__, "commit": revision, "date": date}
    session.answer(answer, version_line())


@app.command("init")
@common
def init(
    session: Session,
    directory: Annotated[
        Path | None, typer.Argument(help="Directory of the workspace (default: the current one).")
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
@common
def status_line(session: Session) -> None:
    """Print one line: the state and address of the hub, and its last event."""
    from appliance.process.status import exit_code, summary_line, workspace_state

    state = workspace_state(session.workspace)
    session.answer(state, summary_line(state))
    raise typer.Exit(exit_code(state))


def agentlip() -> None:
    sys.exit(main(sys.argv[1:]))


def agentlipd() -> None:
    sys.exit(main_daemon(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    return run(_group(app), arguments, "agentlip")


def main_daemon(arguments: list[str]) -> int:
    from appliance.cli_daemon import app as daemon

    return run(_group(daemon), arguments, "agentlipd")


def _group(of: typer.Typer) -> TyperGroup:
    group = get_command(of)
    assert isinstance(group, TyperGroup)
    return group
