"""Command `agentlip doctor bundle`: write facts about a workspace, not the contents."""

from pathlib import Path
from typing import Annotated

import typer

from appliance.cli_support import ProgressLine
from appliance.kernel.clock import SystemClock, iso
from appliance.kernel.errors import Unavailable
from doctor import report
from doctor.all_checks import CHECKS
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


@report_failure
def bundle(
    ctx: typer.Context,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The new file (default: agentlip-bundle-TIME.tar.gz here)."),
    ] = None,
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a support bundle: versions, settings, checks, logs; no messages and no secrets."""
    try:
        from doctor import bundle as support_bundle
    except ImportError as error:
        raise Unavailable(
            "the server's libraries are not installed, so its settings can't be shown",
            hint="pip install 'agentlip[appliance]'",
        ) from error
    datadir = datadir_of(option(ctx, "workspace", workspace))
    settings, off = settings_of(datadir)
    clock = SystemClock()
    stamp = iso(clock.now_ms()).replace(":", "").replace("-", "").partition(".")[0]
    target = out or Path(f"agentlip-bundle-{stamp}.tar.gz")
    shown = progress_of(CHECKS)
    made = support_bundle.make(datadir, settings, clock, off, target, shown)
    ProgressLine.clear()
    if is_json(ctx, as_json):
        typer.echo(report.as_json(made))
        return
    typer.echo(f"Support bundle: {made.file}")
    for file in made.files:
        typer.echo(f"  {file}")
    for name, why in made.left_out.items():
        typer.echo(f"  left out: {name} ({why})")
    typer.echo("Read the bundle before you send it: tar -xzf FILE")
