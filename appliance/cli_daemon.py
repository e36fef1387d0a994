"""`agentlipd`: starts, stops and inspects a workspace's appliance."""

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_reset import NameFlag, reset, uninstall
from appliance.cli_support import (
    Session,
    global_flags,
    note,
    plain_app,
    until_signalled,
    write_now,
)
from appliance.kernel.errors import ApplianceError


class AddressFlags(msgspec.Struct):
    """Options with which every server is started."""

    host: Annotated[str | None, typer.Option("--host", help="Address (default 127.0.0.1).")] = None
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port (default: the last one, else 7464 or the next free one; 0: any free port).",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="Settings file (default: agentlip.toml in the workspace).",
            resolve_path=True,
        ),
    ] = None
    unsafe_network: Annotated[
        bool,
        typer.Option("--unsafe-network", help="Allow an address that other machines can reach."),
    ] = False


class RestartFlags(AddressFlags):
    """Options for a server in the background."""

    no_limits: Annotated[
        bool, typer.Option("--no-limits", help="Disable rate limits, for benchmarks.")
    ] = False
    accept_loss: Annotated[
        list[str] | None,
        typer.Option(
            "--accept-loss",
            metavar="STORE",
            help="Go on without a store's lost data; may be repeated.",
        ),
    ] = None
    as_root: Annotated[
        bool, typer.Option("--as-root", help="As root, use another user's workspace.")
    ] = False


class StartFlags(RestartFlags):
    """Options for the first start."""

    read_only: Annotated[
        bool,
        typer.Option("--read-only", help="Serve the hub's reads and write to no database."),
    ] = False
    migrate_without_backup: Annotated[
        bool,
        typer.Option(
            "--migrate-without-backup",
            help="Migrate older data without a backup first, for example on a full disk.",
        ),
    ] = False


app = plain_app(
    "Start, stop and inspect a workspace's appliance.\n\n"
    "Exit codes: 0 success, 1 error, 2 conflict, 3 not running or not ready, 4 token refused."
)


app.callback()(global_flags)


@app.command(flags=StartFlags)
def up(
    session: Session,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run the server in this process.")
    ] = False,
    **flags: Any,
) -> None:
    """Start the appliance. Creates the workspace if necessary. Safe to repeat.

    Exit code 3 if it starts but is not ready, as on a full disk.
    """
    from appliance.process import daemon
    from appliance.workspace.datadir import find_workspace

    options = _server_options(flags)
    if options.read_only:
        datadir = find_workspace(session.workspace)
    else:
        datadir = daemon.workspace_for_up(
            session.workspace, accepted=options.accept_loss, as_root=options.as_root
        )
    if foreground:
        daemon.become_server(datadir, options)
    _tell_start(session, daemon.start(datadir, options))


@app.command()
def down(session: Session) -> None:
    """Stop the appliance: finish requests, close sockets, checkpoint. Safe to repeat."""
    from appliance.process import stopping
    from appliance.workspace.datadir import find_workspace

    stopped = stopping.stop(find_workspace(session.workspace), note)
    answer = {"status": "stopped", "was_running": stopped is not None}
    if stopped is None:
        session.answer(answer, "no hub was running")
    else:
        how = "stopped" if stopped.gracefully else "killed (it did not stop in time)"
        facts = msgspec.structs.asdict(stopped)
        session.answer({**answer, **facts}, f"{how}: pid {stopped.pid}")


@app.command(flags=RestartFlags)
def restart(session: Session, **flags: Any) -> None:
    """Stop a running appliance, and start again."""
    from appliance.kernel.clock import SystemClock
    from appliance.process import daemon, starting, stopping

    deadline = starting.StartDeadline(SystemClock())
    options = _server_options(flags)
    datadir = daemon.workspace_for_up(session.workspace, as_root=options.as_root)
    daemon.check_settings(datadir, options, deadline)
    stopping.stop(datadir, note)
    _tell_start(session, daemon.start(datadir, options, deadline))


@app.command()
def status(session: Session) -> None:
    """Print the appliance's state, address and start time. Exit code 3 if not ready."""
    from appliance.process.status import describe, exit_code, hub_state
    from appliance.workspace.datadir import find_workspace

    state = hub_state(find_workspace(session.workspace))
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
        typer.Option("--lines", "-n", min=0, max=100_000, help="How many last lines to print."),
    ] = 100,
) -> None:
    """Print the log that an appliance started by `agentlipd up` wrote, also after it stopped.

    With --json each line is the JSON object that was logged.

    Example: agentlipd logs -f --lines 20
    """
    from appliance.process.logfile import LogMissing, LogReader, as_json, as_text
    from appliance.workspace.datadir import find_workspace

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


@app.command("install-service", flags=AddressFlags)
def install_service(
    session: Session,
    system: Annotated[
        bool, typer.Option("--system", help="Install a system service (needs root).")
    ] = False,
    user: Annotated[
        str | None, typer.Option("--user", help="With --system, run as this user.")
    ] = None,
    name: NameFlag = "agentlip",
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the unit without installing it.")
    ] = False,
    **flags: Any,
) -> None:
    """Write a systemd unit, and print the commands that start it."""
    from appliance.process import daemon, systemd

    datadir = daemon.workspace_for_up(session.workspace, make=not print_only)
    arguments = _server_options(flags).arguments()
    unit = systemd.Unit(name, datadir.workspace, arguments, system, user)
    if print_only:
        session.answer({"unit": unit.text()}, unit.text().rstrip("\n"))
        return
    installed = systemd.install(unit)
    lines = [f"wrote {installed['path']}", *installed["next"]]
    session.answer(installed, "\n".join(lines))


@app.command("uninstall-service")
def uninstall_service(
    session: Session,
    system: Annotated[
        bool,
        typer.Option("--system/--user", help="System service (needs root) or user service."),
    ] = False,
    name: NameFlag = "agentlip",
) -> None:
    """Remove this workspace's unit, and print the stop commands. Safe to repeat.

    The workspace and all data stay.

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


def _server_options(flags: dict[str, Any]) -> Any:
    """Return the ServerOptions with these values."""
    from appliance.process.server_options import ServerOptions
    from appliance.workspace.manifest import check_names

    lost = check_names(flags.get("accept_loss") or [])
    return ServerOptions(**flags | {"accept_loss": tuple(sorted(lost))})


def _tell_start(session: Session, state: dict[str, object]) -> None:
    from appliance.process.status import exit_code, welcome

    session.answer(state, welcome(state, _sign_in_link(session, state)))
    raise typer.Exit(0 if state["already_running"] else exit_code(state))


def _sign_in_link(session: Session, state: dict[str, object]) -> str:
    """Return a one-time link, if a person sees the output: a file or a pipe would keep the link."""
    from appliance.sdk.http import Retry

    if session.machine or not sys.stdout.isatty():
        return ""
    try:
        return Session(Path(str(state["workspace"]))).sign_in_link(Retry(attempts_max=1))["link"]
    except ApplianceError:  # for example read-only: the page itself says why
        return ""
