"""`agentlipd`: starts, stops and looks at the appliance of a workspace."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli_reset import reset, uninstall
from appliance.cli_support import (
    Session,
    global_flags,
    note,
    plain_app,
    until_signalled,
    write_now,
)
from appliance.kernel.errors import ApplianceError

HostFlag = Annotated[str | None, typer.Option("--host", help="Address (default 127.0.0.1).")]
PortFlag = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        help="Port (default: the last one, else 7464 or the next free one; 0: any free port).",
    ),
]
ConfigFlag = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Settings file (default: agentlip.toml in the workspace).",
        resolve_path=True,
    ),
]
ForegroundFlag = Annotated[
    bool, typer.Option("--foreground", help="Run the server in this process.")
]
NoLimitsFlag = Annotated[
    bool, typer.Option("--no-limits", help="Disable rate limits, for benchmarks.")
]
UnsafeFlag = Annotated[
    bool, typer.Option("--unsafe-network", help="Allow an address that other machines can reach.")
]
ReadOnlyFlag = Annotated[
    bool, typer.Option("--read-only", help="Serve the hub's reads and write to no database.")
]

AcceptLossFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-loss",
        metavar="STORE",
        help="Create a missing store as an empty one; may be repeated.",
    ),
]

WithoutBackupFlag = Annotated[
    bool,
    typer.Option(
        "--migrate-without-backup",
        help="Migrate older data without a backup first, for example on a full disk.",
    ),
]

AsRootFlag = Annotated[
    bool, typer.Option("--as-root", help="As root, use a workspace of another user.")
]

NameFlag = Annotated[str, typer.Option("--name", help="Name of the systemd service.")]
SystemFlag = Annotated[
    bool,
    typer.Option("--system/--user", help="Service of the machine (needs root) or of your user."),
]

app = plain_app(
    "Start, stop and inspect the appliance of a workspace.\n\n"
    "Exit codes: 0 success, 1 error, 2 conflict, 3 not running or not ready, 4 token refused."
)


app.callback()(global_flags)


@app.command()
def up(
    session: Session,
    host: HostFlag = None,
    port: PortFlag = None,
    config: ConfigFlag = None,
    foreground: ForegroundFlag = False,
    no_limits: NoLimitsFlag = False,
    unsafe_network: UnsafeFlag = False,
    accept_loss: AcceptLossFlag = None,
    read_only: ReadOnlyFlag = False,
    migrate_without_backup: WithoutBackupFlag = False,
    as_root: AsRootFlag = False,
) -> None:
    """Start the appliance. Creates the workspace if necessary. Safe to repeat.

    Exit code 3 if it starts but is not ready, as on a full disk.
    """
    from appliance.process import daemon
    from appliance.process.server_options import ServerOptions
    from appliance.sdk.discovery import find_workspace
    from appliance.workspace.manifest import check_names

    lost = tuple(sorted(check_names(accept_loss or [])))
    options = ServerOptions(
        host=host, port=port, config=config, no_limits=no_limits, unsafe_network=unsafe_network,
        accept_loss=lost, read_only=read_only, migrate_without_backup=migrate_without_backup,
        as_root=as_root,
    )  # fmt: skip
    if read_only:
        datadir = find_workspace(session.workspace)
    else:
        datadir = daemon.workspace_for_up(session.workspace, accepted=lost, as_root=as_root)
    if foreground:
        daemon.become_server(datadir, options)
    _tell_start(session, daemon.start(datadir, options))


@app.command()
def down(session: Session) -> None:
    """Stop the appliance: finish requests, close sockets, checkpoint. Safe to repeat."""
    from appliance.process import stopping
    from appliance.sdk.discovery import find_workspace

    stopped = stopping.stop(find_workspace(session.workspace), note)
    answer = {"status": "stopped", "was_running": stopped is not None}
    if stopped is None:
        session.answer(answer, "no hub was running")
    else:
        how = "stopped" if stopped.gracefully else "killed (it did not stop in time)"
        session.answer({**answer, **stopped.facts()}, f"{how}: pid {stopped.pid}")


@app.command()
def restart(
    session: Session,
    host: HostFlag = None,
    port: PortFlag = None,
    config: ConfigFlag = None,
    no_limits: NoLimitsFlag = False,
    unsafe_network: UnsafeFlag = False,
    accept_loss: AcceptLossFlag = None,
    as_root: AsRootFlag = False,
) -> None:
    """Stop the appliance if it runs, and start it."""
    from appliance.kernel.clock import SystemClock
    from appliance.process import daemon, starting, stopping
    from appliance.process.server_options import ServerOptions
    from appliance.workspace.manifest import check_names

    deadline = starting.StartDeadline(SystemClock())
    lost = tuple(sorted(check_names(accept_loss or [])))
    options = ServerOptions(
        host=host, port=port, config=config, no_limits=no_limits, unsafe_network=unsafe_network,
        accept_loss=lost, as_root=as_root,
    )  # fmt: skip
    datadir = daemon.workspace_for_up(session.workspace, as_root=as_root)
    daemon.check_settings(datadir, options, deadline)
    stopping.stop(datadir, note)
    _tell_start(session, daemon.start(datadir, options, deadline))


@app.command()
def status(session: Session) -> None:
    """Print the state, address and start time of the appliance. Exit code 3 if not ready."""
    from appliance.process.status import describe, exit_code, workspace_state

    state = workspace_state(session.workspace)
    session.answer(state, describe(state))
    raise typer.Exit(exit_code(state))


@app.command()
def logs(
    session: Session,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until interrupted.")
    ] = False,
    lines: Annotated[
        int,
        typer.Option("--lines", "-n", min=0, max=100_000, help="Number of last lines to print."),
    ] = 100,
) -> None:
    """Print the log of an appliance that `agentlipd up` started, also after it stopped.

    With --json each line is the JSON object that was logged.

    Example: agentlipd logs -f --lines 20
    """
    from appliance.process.logfile import LogMissing, LogReader, as_json, as_text
    from appliance.sdk.discovery import find_workspace

    reader = LogReader(find_workspace(session.workspace))

    def show(line: bytes) -> None:
        write_now(as_json(line) if session.machine else as_text(line).encode())

    with until_signalled():
        try:
            for line in reader.last(lines):
                show(line)
        except LogMissing as missing:
            if not follow:
                raise
            note(f"{missing.message}; waiting for one")
        for line in reader.follow() if follow else ():
            show(line)


@app.command("install-service")
def install_service(
    session: Session,
    system: Annotated[
        bool, typer.Option("--system", help="Install a service of the machine (needs root).")
    ] = False,
    user: Annotated[
        str | None, typer.Option("--user", help="With --system, run as this user.")
    ] = None,
    name: NameFlag = "agentlip",
    host: HostFlag = None,
    port: PortFlag = None,
    config: ConfigFlag = None,
    unsafe_network: UnsafeFlag = False,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the unit without installing it.")
    ] = False,
) -> None:
    """Write a systemd unit, and print the commands that start it."""
    from appliance.process import daemon, systemd
    from appliance.process.server_options import ServerOptions

    options = ServerOptions(host=host, port=port, config=config, unsafe_network=unsafe_network)
    datadir = daemon.workspace_for_up(session.workspace, make=not print_only)
    unit = systemd.Unit(name, datadir.workspace, options.arguments(), system, user)
    if print_only:
        session.answer({"unit": unit.text()}, unit.text().rstrip("\n"))
        return
    installed = systemd.install(unit)
    lines = [f"wrote {installed['path']}", *installed["next"]]
    session.answer(installed, "\n".join(lines))


@app.command("uninstall-service")
def uninstall_service(
    session: Session,
    system: SystemFlag = False,
    name: NameFlag = "agentlip",
) -> None:
    """Remove the unit of this workspace, and print the commands that stop it. Safe to repeat.

    The workspace and its data stay.

    Example: agentlipd uninstall-service --system
    """
    from appliance.process import daemon, systemd

    datadir = daemon.workspace_for_up(session.workspace, make=False)
    answer = systemd.uninstall(systemd.Unit(name, datadir.workspace, [], system))
    messages = [f"removed {path}" for path in answer["removed"]]
    messages = messages or [f"there is no service {answer['path']}"]
    session.answer(answer, "\n".join([*messages, *answer["next"]]))


app.command("reset")(reset)
app.command("uninstall")(uninstall)


def _tell_start(session: Session, state: dict[str, object]) -> None:
    from appliance.process.status import exit_code, welcome

    session.answer(state, welcome(state, _sign_in_link(session, state)))
    raise typer.Exit(0 if state["already_running"] else exit_code(state))


def _sign_in_link(session: Session, state: dict[str, object]) -> str:
    """A one-time link, if a person sees it: a file or a pipe would keep it."""
    from appliance.sdk.http import Retry

    if session.machine or not sys.stdout.isatty():
        return ""
    try:
        return Session(Path(str(state["workspace"]))).sign_in_link(Retry(attempts_max=1))["link"]
    except ApplianceError:  # for example read-only: the page itself says why
        return ""
