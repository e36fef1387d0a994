"""`agentlipd`: starts, stops and looks at the appliance of a workspace."""

from pathlib import Path
from typing import Annotated

import typer

from appliance.cli_reset import reset, uninstall
from appliance.cli_support import (
    JsonFlag,
    JsonlFlag,
    Session,
    VersionFlag,
    WorkspaceFlag,
    common,
    note,
    plain_app,
    until_signalled,
    write_now,
)

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
    Path | None, typer.Option("--config", help="Settings (default: agentlip.toml there).")
]
ForegroundFlag = Annotated[
    bool, typer.Option("--foreground", help="Become the server instead of starting one.")
]
NoLimitsFlag = Annotated[bool, typer.Option("--no-limits", help="No rate limits; for measuring.")]
UnsafeFlag = Annotated[
    bool, typer.Option("--unsafe-network", help="Allow an address beyond this machine.")
]

AcceptLossFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-loss",
        metavar="STORE",
        help="Create a missing store again, empty; may be repeated.",
    ),
]

NameFlag = Annotated[str, typer.Option("--name", help="Name of the service.")]
SystemFlag = Annotated[
    bool, typer.Option("--system/--user", help="Of the machine (needs root), or of your user.")
]

app = plain_app(
    "Start, stop and look at the appliance of a workspace.\n\n"
    "Exit codes: 0 success, 1 error, 2 conflict, 3 not running or not ready, 4 token refused."
)


@app.callback()
def _globals(
    version: VersionFlag = False,
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
    as_jsonl: JsonlFlag = False,
) -> None:
    del version, workspace, as_json, as_jsonl  # read from the context by terminal.common


@app.command()
@common
def up(
    session: Session,
    host: HostFlag = None,
    port: PortFlag = None,
    config: ConfigFlag = None,
    foreground: ForegroundFlag = False,
    no_limits: NoLimitsFlag = False,
    unsafe_network: UnsafeFlag = False,
    accept_loss: AcceptLossFlag = None,
) -> None:
    """Start the appliance; makes the workspace when there is none. Safe to repeat."""
    from appliance import daemon
    from appliance.kernel.manifest import check_names

    lost = tuple(sorted(check_names(accept_loss or [])))
    options = daemon.ServerOptions(host, port, config, no_limits, unsafe_network, lost)
    datadir = daemon.workspace_for_up(session.workspace, accepted=lost)
    if foreground:
        daemon.become_server(datadir, options)
    _tell_start(session, daemon.start(datadir, options))


@app.command()
@common
def down(session: Session) -> None:
    """Stop the appliance: drained, sockets closed, log folded back. Safe to repeat."""
    from appliance import daemon

    stopped = daemon.stop(daemon.workspace(session.workspace), note)
    answer = {"status": "stopped", "was_running": stopped is not None}
    if stopped is None:
        session.answer(answer, "no hub was running")
    else:
        how = "stopped" if stopped.gracefully else "killed (it didn't stop by itself)"
        session.answer({**answer, **stopped.facts()}, f"{how}: pid {stopped.pid}")


@app.command()
@common
def restart(
    session: Session,
    host: HostFlag = None,
    port: PortFlag = None,
    config: ConfigFlag = None,
    no_limits: NoLimitsFlag = False,
    unsafe_network: UnsafeFlag = False,
) -> None:
    """Stop the appliance if it runs, and start it."""
    from appliance import daemon

    options = daemon.ServerOptions(host, port, config, no_limits, unsafe_network)
    datadir = daemon.workspace_for_up(session.workspace)
    daemon.check_settings(datadir, options)
    daemon.stop(datadir, note)
    _tell_start(session, daemon.start(datadir, options))


@app.command()
@common
def status(session: Session) -> None:
    """Print whether it runs and is ready, where, and since when. Exit code 3 if not."""
    from appliance.status import describe, exit_code, look

    state = look(session.workspace)
    session.answer(state, describe(state))
    raise typer.Exit(exit_code(state))


@app.command()
@common
def logs(
    session: Session,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is added, until interrupted.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=100_000, help="At most so many, the last.")
    ] = 100,
) -> None:
    """Print the log of an appliance that `agentlipd up` started, also after it stopped.

    With --json each line is the JSON object that was logged.

    Example: agentlipd logs -f --lines 20
    """
    from appliance import daemon
    from appliance.logfile import LogMissing, LogReader, as_json, as_text

    reader = LogReader(daemon.workspace(session.workspace))

    def show(line: bytes) -> None:
        write_now(as_json(line) if session.machine else as_text(line).encode())

    with until_signalled():
        try:
            for line in reader.last(lines, going_on=follow):
                show(line)
        except LogMissing as missing:
            if not follow:
                raise
            note(f"{missing.message}; waiting for one")
        for line in reader.added() if follow else ():
            show(line)


@app.command("install-service")
@common
def install_service(
    session: Session,
    system: Annotated[
        bool, typer.Option("--system", help="For the machine, not for your user (needs root).")
    ] = False,
    user: Annotated[
        str | None, typer.Option("--user", help="With --system: run as this user.")
    ] = None,
    name: NameFlag = "agentlip",
    host: HostFlag = None,
    port: PortFlag = None,
    config: ConfigFlag = None,
    unsafe_network: UnsafeFlag = False,
    print_only: Annotated[
        bool, typer.Option("--print", help="Only print the unit; change nothing.")
    ] = False,
    enable: Annotated[
        bool, typer.Option("--enable/--no-enable", help="Also start it now and at every boot.")
    ] = True,
    allow_ci: Annotated[
        bool, typer.Option("--allow-ci-persistent", help="Also in a CI job.")
    ] = False,
) -> None:
    """Let systemd keep the appliance running, also after a reboot. Not in a CI job."""
    import os

    from appliance import daemon, systemd

    if not print_only:
        systemd.check_ci(os.environ, allowed=allow_ci)
    options = daemon.ServerOptions(host, port, config, False, unsafe_network)
    datadir = daemon.workspace_for_up(session.workspace, make=not print_only)
    unit = systemd.Unit(name, datadir.workspace, options.arguments(), system, user)
    if print_only:
        session.answer({"unit": unit.text()}, unit.text().rstrip("\n"))
        return
    installed = systemd.install(unit, enable=enable)
    lines = [f"wrote {installed['path']}", *installed["next"]]
    session.answer(installed, "\n".join(lines))


@app.command("uninstall-service")
@common
def uninstall_service(
    session: Session,
    system: SystemFlag = False,
    name: NameFlag = "agentlip",
) -> None:
    """Stop the service of this workspace and remove its unit. Safe to repeat.

    The workspace and its data stay.

    Example: agentlipd uninstall-service --system
    """
    from appliance import daemon, systemd

    datadir = daemon.workspace_for_up(session.workspace, make=False)
    answer = systemd.uninstall(systemd.Unit(name, datadir.workspace, [], system))
    told = [f"removed {path}" for path in answer["removed"]]
    told = told or [f"there is no service {answer['path']}"]
    session.answer(answer, "\n".join([*told, *answer["next"]]))


app.command("reset")(reset)
app.command("uninstall")(uninstall)


def _tell_start(session: Session, state: dict[str, object]) -> None:
    from appliance.status import welcome

    session.answer(state, welcome(state))
