"""A systemd unit for one workspace, so that the appliance outlives logouts and reboots."""

import getpass
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from appliance.daemon import checkout
from appliance.kernel.errors import ApplianceError, Invalid

COMMAND_SECONDS_MAX = 60
STOP_SECONDS_MAX = 15  # the server drains for up to 10

TEMPLATE = """\
[Unit]
Description=Agentlip Appliance for {workspace}
After=network.target

[Service]
Type=exec
ExecStart={command}
WorkingDirectory={directory}
{owner}{search}Restart=on-failure
RestartSec=2
TimeoutStopSec={stop_seconds}
UMask=0077
NoNewPrivileges=yes
LimitNOFILE=8192

[Install]
WantedBy={target}
"""


class BadUnitName(Invalid):
    sentence = "a service's name has only letters, digits, dots, dashes and underscores"
    advice = "agentlipd install-service --name agentlip"


class InstallFailed(ApplianceError):
    kind = "invalid"
    code = "INSTALL_FAILED"
    sentence = "the service could not be installed"
    advice = "agentlipd install-service --help"


class Unit(msgspec.Struct, frozen=True):
    """A unit before it is written. `system` means for the machine, else for this user."""

    name: str
    workspace: Path
    arguments: list[str]
    system: bool = False
    user: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}", self.name):
            raise BadUnitName
        if self.user is not None and not self.system:
            raise Invalid("--user goes with --system; a user's own service runs as that user")

    @property
    def path(self) -> Path:
        if self.system:
            return Path("/etc/systemd/system") / f"{self.name}.service"
        config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        return Path(config) / "systemd" / "user" / f"{self.name}.service"

    def text(self) -> str:
        program = [sys.executable, "-P", "-m", "appliance.server"]
        command = [*program, "--workspace", str(self.workspace), *self.arguments]
        root = checkout()
        owner = self.user or os.environ.get("SUDO_USER") or getpass.getuser()
        return TEMPLATE.format(
            workspace=str(self.workspace).replace("%", "%%"),
            command=" ".join(quoted(part) for part in command),
            directory=str(self.workspace).replace("%", "%%"),
            owner=f"User={owner}\n" if self.system else "",
            search=f"Environment={quoted(f'PYTHONPATH={root}')}\n" if root else "",
            stop_seconds=STOP_SECONDS_MAX,
            target="multi-user.target" if self.system else "default.target",
        )


def quoted(part: str) -> str:
    """One word of ExecStart as systemd reads it back."""
    text = part.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return text if re.fullmatch(r"[A-Za-z0-9_./:@,+=%-]+", text) else f'"{text}"'


def install(unit: Unit, *, enable: bool) -> dict[str, Any]:
    """Writes the unit and, unless told not to, starts it now and at every boot."""
    path = unit.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit.text(), encoding="utf-8")
    except OSError as error:
        raise InstallFailed(
            f"can't write {path}: {error.strerror}",
            hint="for the machine it needs root: sudo agentlipd install-service --system"
            if unit.system
            else "agentlipd install-service --print",
        ) from None
    control = ["systemctl"] if unit.system else ["systemctl", "--user"]
    steps = [[*control, "daemon-reload"], [*control, "enable", "--now", f"{unit.name}.service"]]
    spelled = [" ".join(step) for step in steps]
    after = [] if unit.system else ["to keep it without a login: loginctl enable-linger"]
    if not enable:
        todo = ["to start it now and at every boot:", *(f"  {each}" for each in spelled)]
        return {"path": str(path), "enabled": False, "next": [*todo, *after]}
    if not Path("/run/systemd/system").is_dir() or shutil.which("systemctl") is None:
        why = "systemd does not run here; on a machine where it does:"
        todo = [why, *(f"  {each}" for each in spelled)]
        return {"path": str(path), "enabled": False, "next": [*todo, *after]}
    for step in steps:
        _do(step)
    return {"path": str(path), "enabled": True, "next": ["started, now and at every boot", *after]}


def _do(step: list[str]) -> None:
    spelled = " ".join(step)
    try:
        done = subprocess.run(
            step, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallFailed(f"'{spelled}' failed: {type(error).__name__}", hint=spelled) from None
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise InstallFailed(
            f"'{spelled}' failed: {words[-1] if words else done.returncode}", hint=spelled
        )
