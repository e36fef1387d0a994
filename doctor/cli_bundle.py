"""`agentlip doctor bundle` writes a support bundle: facts about a workspace, not its contents."""

from pathlib import Path
from typing import Annotated

import typer

from appliance.cli_support import ProgressLine
from appliance.kernel.clock import SystemClock, iso
from appliance.kernel.errors import Unavailable
from doctor import report
from doctor.checks import CHECKS
from doctor.cli_check import progress_of
from doctor.cli_options import (
    JsonFlag,
    WorkspaceFlag,
    datadir_of,
    is_json,
    option,
    report_failure,
    settings_of,
)

BUNDLE_LOG_BYTES = 1024 * 1024  # newest bytes of each log file in a support bundle


@report_failure
def bundle(
    ctx: typer.Context,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The new file (default: agentlip-bundle-TIME.tar.gz here)."),
    ] = None,
    logs_bytes: Annotated[
        int | None,
        typer.Option(
            "--logs-bytes", min=0, help="Newest bytes of each log (default: the setting)."
        ),
    ] = None,
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a support bundle: versions, settings, checks, logs; no messages and no secrets."""
    try:
        from doctor import bundle as support_bundle
    except ImportError as error:
        raise Unavailable(
            "the libraries of the server are not installed, so its settings can't be shown",
            hint="pip install 'agentlip[appliance]'",
        ) from error
    datadir = datadir_of(option(ctx, "workspace", workspace))
    settings, off = settings_of(datadir)
    clock = SystemClock()
    stamp = iso(clock.now_ms()).replace(":", "").replace("-", "").partition(".")[0]
    target = out or Path(f"agentlip-bundle-{stamp}.tar.gz")
    log_bytes = BUNDLE_LOG_BYTES if logs_bytes is None else logs_bytes
    shown = progress_of(CHECKS)
    manifest = support_bundle.make(datadir, settings, clock, off, target, log_bytes, shown)
    ProgressLine.clear()
    if is_json(ctx, as_json):
        typer.echo(report.as_json({"file": str(target.absolute()), "manifest": manifest}))
        return
    typer.echo(f"Support bundle: {target.absolute()}")
    for file in manifest.files:
        typer.echo(f"  {file.name}: {file.bytes} bytes")
    for name, why in manifest.left_out.items():
        typer.echo(f"  left out: {name} ({why})")
    for what, count in manifest.redacted.items():
        if count:
            typer.echo(f"  taken out: {what} ({count})")
    typer.echo("Read it before you send it: tar -xzf FILE")
