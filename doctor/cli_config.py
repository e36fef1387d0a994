"""Command `agentlip config`: the settings, and where each comes from."""

import os
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, plain_app
from appliance.kernel.errors import Missing

app = plain_app("Settings, and where each comes from.", "Administration/config")


@app.callback()
def _config() -> None:
    """Make Typer keep `show` as a subcommand while there is no second one."""


@app.command("show")
def show_settings(
    session: Session,
    section: Annotated[
        str, typer.Argument(metavar="[SECTION]", help="Only this section, for instance http.")
    ] = "",
    changed: Annotated[
        bool, typer.Option("--changed", help="Only settings that differ from their default.")
    ] = False,
    origin: Annotated[
        bool, typer.Option("--origin", help="Also say where each value comes from.")
    ] = False,
) -> None:
    """Show the settings that the running appliance has, or would start with.

    Example: agentlip config show http --origin
    """
    settings = _settings(session)
    rows = [
        {"setting": name, "value": setting["value"], "origin": setting["origin"],
         "kind": setting["kind"]}
        for name, setting in settings.items()
        if name.startswith(f"{section}.") or section in ("", name)
    ]  # fmt: skip
    if not rows:
        known = sorted({name.partition(".")[0] for name in settings})
        raise Missing(f"no section or setting {section!r}", hint=f"sections: {', '.join(known)}")
    if changed:
        rows = [row for row in rows if row["origin"] != "default"]
    if not session.machine:
        rows = [{**row, "value": _as_text(row)} for row in rows]
    columns = [("SETTING", "setting"), ("VALUE", "value"), ("ORIGIN", "origin")]
    session.table(
        rows, columns if origin else columns[:2], empty="every setting has its default value"
    )


def _as_text(row: dict[str, Any]) -> str:
    if row["kind"]:
        return f"({row['kind']})"
    return msgspec.json.encode(row["value"]).decode()


def _settings(session: Session) -> dict[str, Any]:
    """Return the running appliance's settings, or the settings for a start."""
    from appliance.sdk.discovery import HubNotRunning

    try:
        shown: dict[str, Any] = session.hub().get("/api/v1/settings")["settings"]
    except HubNotRunning:
        if session.workspace is None and os.environ.get("AGENTLIP_URL"):
            raise
        return _of_next_start(session)
    return shown


def _of_next_start(session: Session) -> dict[str, Any]:
    from appliance.kernel import config
    from appliance.settings import Settings
    from doctor.cli_options import datadir_of
    from doctor.settings_view import view

    file = datadir_of(session.workspace).settings_file
    settings = config.load(Settings, file, os.environ)
    shown: dict[str, Any] = msgspec.to_builtins(view(file, os.environ, settings).settings)
    return shown
