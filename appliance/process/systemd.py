"""Writes a systemd unit for a workspace, so that the appliance survives logouts and reboots.

`systemctl` is the operator's: the answers name the commands that start and stop the service.
"""

import errno
import getpass
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from appliance.kernel.errors import ApplianceError, Conflict, Invalid
from appliance.process.daemon import checkout, server_command

STOP_SECONDS_MAX = 20  # the server drains for up to 10
WATCHDOG_SECONDS = 120  # far longer than the slowest request
HOMES = ("/home", "/root", "/run/user")  # folders that ProtectHome= hides
TEMPORARY = ("/tmp", "/var/tmp")  # folders that PrivateTmp= hides

TEMPLATE = """\
[Unit]
Description=Agentlip Appliance for {workspace}
After=network.target
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
# A start may migrate for long, and reports nothing meanwhile.
TimeoutStartSec=infinity
# An event loop that does not run for this long is started again.
WatchdogSec={watchdog_seconds}
{owner}WorkingDirectory={workspace}
{environment}ExecStart={command}
# After StartLimitBurst failed starts (bad settings, a second hub) systemd gives up.
Restart=on-failure
RestartSec=2
TimeoutStopSec={stop_seconds}
KillMode=mixed
UMask=0077
LimitNOFILE=8192
MemoryHigh=70%
MemoryMax=80%
OOMPolicy=continue

{hardening}
[Install]
WantedBy={target}
"""

# Every unit: options that need no manager privileges.
HARDENING = """\
NoNewPrivileges=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
# Landlock and seccomp confine the plugins.
SystemCallFilter=@system-service seccomp
SystemCallFilter=landlock_create_ruleset landlock_add_rule landlock_restrict_self
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
"""

# System units: a user's manager can neither mount nor drop capabilities.
SYSTEM_HARDENING = """\
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ReadWritePaths={writable}
ProtectHome={protect_home}
PrivateTmp={private_tmp}
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
"""


class BadUnitName(Invalid):
    default_message = "a service name has only letters, digits, dots, dashes and underscores"
    default_hint = "agentlipd install-service --name agentlip"


class InstallFailed(ApplianceError):
    kind = "invalid"
    code = "INSTALL_FAILED"
    default_message = "the service could not be installed"
    default_hint = "agentlipd install-service --help"


class UninstallFailed(ApplianceError):
    kind = "invalid"
    code = "UNINSTALL_FAILED"
    default_message = "the service could not be removed"
    default_hint = "agentlipd uninstall-service --help"


class OtherService(Conflict):
    code = "OTHER_SERVICE"
    default_message = "the service with this name was not installed for this workspace"
    default_hint = "agentlipd uninstall-service --help"


class Unit(msgspec.Struct, frozen=True):
    """A unit file. `system`: for the machine, otherwise for this user."""

    name: str
    workspace: Path
    arguments: list[str]
    system: bool = False
    user: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}", self.name):
            raise BadUnitName
        if self.user is not None and not self.system:
            raise Invalid("--user needs --system; a user service always runs as its user")

    @property
    def path(self) -> Path:
        """Return the unit file's path."""
        if self.system:
            return Path("/etc/systemd/system") / f"{self.name}.service"
        config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        return Path(config) / "systemd" / "user" / f"{self.name}.service"

    @property
    def control(self) -> str:
        """Return the `systemctl` command that starts and stops the unit."""
        return "systemctl" if self.system else "systemctl --user"

    def text(self) -> str:
        command = server_command(self.workspace, self.arguments)
        root = checkout()
        owner = self.user or os.environ.get("SUDO_USER") or getpass.getuser()
        used = [Path(sys.prefix), Path(sys.executable).resolve(), *([root] if root else [])]
        used += [
            Path(argument) for argument in self.arguments if argument.startswith("/")
        ]  # --config
        return render(
            self.workspace,
            command,
            owner=f"User={owner}\n" if self.system else "",
            environment=f"Environment={quote(f'PYTHONPATH={root}')}\n" if root else "",
            system=self.system,
            used=used,
        )


def render(
    workspace: Path,
    command: list[str],
    *,
    owner: str,
    environment: str,
    system: bool,
    used: list[Path],
) -> str:
    """Return a unit's text. `used`: paths that the service must read, beside the workspace."""
    text = str(workspace).replace("%", "%%")
    hardening = HARDENING
    if system:
        homes = any(_is_below(path, HOMES) for path in (workspace, *used))
        hardening += SYSTEM_HARDENING.format(
            writable=f'"{text}"' if " " in text else text,
            protect_home="read-only" if homes else "yes",
            private_tmp="no" if _is_below(workspace, TEMPORARY) else "yes",
        )
    return TEMPLATE.format(
        workspace=text,
        command=" ".join(quote(part) for part in command),
        owner=owner,
        environment=environment,
        stop_seconds=STOP_SECONDS_MAX,
        watchdog_seconds=WATCHDOG_SECONDS,
        hardening=hardening,
        target="multi-user.target" if system else "default.target",
    )


def _is_below(path: Path, folders: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def quote(part: str) -> str:
    """Quote an ExecStart argument for systemd."""
    text = part.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return text if re.fullmatch(r"[A-Za-z0-9_./:@,+=%-]+", text) else f'"{text}"'


def install(unit: Unit) -> dict[str, Any]:
    """Write the unit, and return its path and the start commands."""
    path = unit.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit.text(), encoding="utf-8")
    except OSError as error:
        raise InstallFailed(
            f"can't write {path}: {error.strerror}",
            hint="--system needs root: sudo agentlipd install-service --system"
            if unit.system
            else "agentlipd install-service --print",
        ) from None
    lines = [
        "to start it now and at every boot:",
        f"  {unit.control} daemon-reload",
        f"  {unit.control} enable --now {unit.name}.service",
    ]
    if not unit.system:
        lines.append("to run it without a login: loginctl enable-linger")
    return {"path": str(path), "next": lines}


def is_installed(unit: Unit) -> bool:
    """Return whether the service exists and belongs to this workspace."""
    try:
        return workspace_of(unit) == unit.workspace
    except OtherService:
        return False


def workspace_of(unit: Unit) -> Path | None:
    """Return the installed service's workspace, by the service's name; None without one."""
    with removing(unit):
        try:
            lines = unit.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return None
    prefix = "Description=Agentlip Appliance for "
    folders = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    if not folders:
        raise OtherService(
            f"{unit.path} was not written by agentlipd", details={"path": str(unit.path)}
        )
    return Path(folders[0].replace("%%", "%"))


def uninstall(unit: Unit) -> dict[str, Any]:
    """Remove the unit, and return the removed files and the commands that stop the service. Safe to
    repeat.

    Raises OtherService for another program's or workspace's unit.
    """
    path, serves = unit.path, workspace_of(unit)
    if serves is None:
        return {"path": str(path), "removed": [], "next": []}
    if serves != unit.workspace:
        raise OtherService(
            f"{path} is the service for the workspace {serves}, not of {unit.workspace}",
            details={"path": str(path), "workspace": str(serves)},
            hint=f"agentlipd uninstall-service --workspace {shlex.quote(str(serves))}",
        )
    # `systemctl enable` creates the link, and `disable` removes it.
    target = "multi-user" if unit.system else "default"
    link = path.parent / f"{target}.target.wants" / path.name
    removed = [file for file in (link, path) if file.is_symlink() or file.exists()]
    with removing(unit):
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        for file in removed:
            file.unlink(missing_ok=True)
    return {
        "path": str(path),
        "removed": [str(file) for file in removed],
        "next": [
            "if the appliance runs, stop it:",
            f"  {unit.control} stop {unit.name}.service",
            f"  {unit.control} daemon-reload",
        ],
    }


@contextmanager
def removing(unit: Unit) -> Iterator[None]:
    """Report an OSError as UninstallFailed."""
    try:
        yield
    except OSError as error:
        raise UninstallFailed(
            f"can't remove {error.filename}: {error.strerror}",
            details={"path": str(error.filename)},
            hint="--system needs root: sudo agentlipd uninstall-service --system"
            if unit.system
            else None,
        ) from None
