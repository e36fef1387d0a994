"""A systemd unit for one workspace, so that the appliance outlives logouts and reboots."""

import errno
import getpass
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from appliance.daemon import checkout
from appliance.identity.mode import in_ci, passing
from appliance.kernel.errors import ApplianceError, Conflict, Invalid

COMMAND_SECONDS_MAX = 60
STOP_SECONDS_MAX = 20  # the server drains for up to 10
HOMES = ("/home", "/root", "/run/user")  # what ProtectHome= hides
TEMPORARY = ("/tmp", "/var/tmp")  # what PrivateTmp= hides

TEMPLATE = """\
[Unit]
Description=Agentlip Appliance for {workspace}
After=network.target
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=exec
{owner}WorkingDirectory={workspace}
{environment}ExecStart={command}
# A start that fails again and again (settings, a second hub) ends after StartLimitBurst.
Restart=on-failure
RestartSec=2
TimeoutStopSec={stop_seconds}
KillMode=mixed
UMask=0077
LimitNOFILE=8192

{hardening}
[Install]
WantedBy={target}
"""

# Every unit: what needs no privilege of the manager.
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

# Units of the machine: a user's manager may neither mount nor drop capabilities.
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

REFERENCE_HEAD = """\
# The appliance as a service of the machine, for a checkout in /opt/agentlip and a workspace
# in /var/lib/agentlip:
#
#   useradd --system --home-dir /var/lib/agentlip agentlip
#   cp ops/systemd/agentlip.service /etc/systemd/system/ && systemctl enable --now agentlip
#
# `agentlipd install-service --system` writes the same with the paths of this machine.
# Made by ops/write_docs.py from appliance/systemd.py; not edited by hand.
"""


class BadUnitName(Invalid):
    sentence = "a service's name has only letters, digits, dots, dashes and underscores"
    advice = "agentlipd install-service --name agentlip"


class InstallFailed(ApplianceError):
    kind = "invalid"
    code = "INSTALL_FAILED"
    sentence = "the service could not be installed"
    advice = "agentlipd install-service --help"


class UninstallFailed(ApplianceError):
    kind = "invalid"
    code = "UNINSTALL_FAILED"
    sentence = "the service could not be removed"
    advice = "agentlipd uninstall-service --help"


class OtherService(Conflict):
    code = "OTHER_SERVICE"
    sentence = "the service of this name was not installed for this workspace"
    advice = "agentlipd uninstall-service --help"


class ServiceInCi(Conflict):
    code = "SERVICE_IN_CI"
    sentence = "this is a CI job, gone soon: no service is installed"
    advice = "agentlipd install-service --allow-ci-persistent"


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
        """Where systemd looks for it."""
        if self.system:
            return Path("/etc/systemd/system") / f"{self.name}.service"
        config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        return Path(config) / "systemd" / "user" / f"{self.name}.service"

    def text(self) -> str:
        program = [sys.executable, "-P", "-m", "appliance.server"]
        command = [*program, "--workspace", str(self.workspace), *self.arguments]
        root = checkout()
        owner = self.user or os.environ.get("SUDO_USER") or getpass.getuser()
        used = [Path(sys.prefix), Path(sys.executable).resolve(), *([root] if root else [])]
        used += [Path(each) for each in self.arguments if each.startswith("/")]  # --config
        return render(
            self.workspace,
            command,
            owner=f"User={owner}\n" if self.system else "",
            environment=f"Environment={quoted(f'PYTHONPATH={root}')}\n" if root else "",
            system=self.system,
            used=used,
        )


def reference() -> str:
    """The text of ops/systemd/agentlip.service."""
    workspace = Path("/var/lib/agentlip")
    program = "/opt/agentlip/.venv/bin/agentlipd"
    return REFERENCE_HEAD + render(
        workspace,
        [program, "up", "--foreground", "--workspace", str(workspace)],
        owner="User=agentlip\nGroup=agentlip\nStateDirectory=agentlip\nStateDirectoryMode=0750\n",
        environment="",
        system=True,
        used=[Path(program)],
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
    """A unit. `used` are the paths beside the workspace that the service must be able to read."""
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
        command=" ".join(quoted(part) for part in command),
        owner=owner,
        environment=environment,
        stop_seconds=STOP_SECONDS_MAX,
        hardening=hardening,
        target="multi-user.target" if system else "default.target",
    )


def _is_below(path: Path, folders: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


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
    if not _systemd_runs():
        why = "systemd does not run here; on a machine where it does:"
        todo = [why, *(f"  {each}" for each in spelled)]
        return {"path": str(path), "enabled": False, "next": [*todo, *after]}
    for step in steps:
        _do(step)
    return {"path": str(path), "enabled": True, "next": ["started, now and at every boot", *after]}


def check_ci(environment: Mapping[str, str], *, allowed: bool) -> None:
    """Raises ServiceInCi in a CI job: what it installs outlives nothing, or the wrong thing."""
    if in_ci(environment) and not allowed:
        found = passing(environment)
        raise ServiceInCi(
            f"this is a CI job ({found} is set), gone soon: no service is installed",
            details={"variable": found},
        )


def is_installed(unit: Unit) -> bool:
    """Whether there is such a service, and of this workspace."""
    try:
        return workspace_of(unit) == unit.workspace
    except OtherService:
        return False


def workspace_of(unit: Unit) -> Path | None:
    """The workspace that the installed service of this name serves; None where there is none."""
    try:
        lines = unit.path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _not_removed(unit, unit.path, error) from None
    mark, key = "Description=Agentlip Appliance for ", "WorkingDirectory="
    if not any(line.startswith(mark) for line in lines):
        raise OtherService(
            f"{unit.path} was not written by agentlipd", details={"path": str(unit.path)}
        )
    found = [line.removeprefix(key) for line in lines if line.startswith(key)]
    return Path(found[0].replace("%%", "%")) if found else None


def uninstall(unit: Unit) -> dict[str, Any]:
    """Stops the service and takes its unit away; what was done. Safe to repeat.

    Raises OtherService for a unit that somebody else wrote, or that is of another workspace.
    """
    path, wanted = unit.path, _wanted(unit)
    serves = workspace_of(unit)
    if serves is None and not path.exists():
        return {"path": str(path), "removed": [], "stopped": False, "next": []}
    if serves != unit.workspace:
        raise OtherService(
            f"{path} is the service of the workspace {serves}, not of {unit.workspace}",
            details={"path": str(path), "workspace": str(serves)},
            hint=f"agentlipd uninstall-service --workspace {shlex.quote(str(serves))}",
        )
    if not os.access(path.parent, os.W_OK):
        raise _not_removed(unit, path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    control = ["systemctl"] if unit.system else ["systemctl", "--user"]
    running = _systemd_runs()
    if running:
        _do([*control, "disable", "--now", f"{unit.name}.service"], UninstallFailed)
    removed = [each for each in (wanted, path) if each.is_symlink() or each.exists()]
    for each in removed:
        try:
            each.unlink(missing_ok=True)
        except OSError as error:
            raise _not_removed(unit, each, error) from None
    if running:
        _do([*control, "daemon-reload"], UninstallFailed)
    after = [] if running else ["systemd does not run here; what it started elsewhere goes on"]
    names = [str(each) for each in removed]
    return {"path": str(path), "removed": names, "stopped": running, "next": after}


def _wanted(unit: Unit) -> Path:
    """The link that `systemctl enable` makes, and `disable` removes where systemd runs."""
    target = "multi-user" if unit.system else "default"
    return unit.path.parent / f"{target}.target.wants" / unit.path.name


def _not_removed(unit: Unit, path: Path, error: OSError) -> UninstallFailed:
    return UninstallFailed(
        f"can't remove {path}: {error.strerror}",
        details={"path": str(path)},
        hint="for the machine it needs root: sudo agentlipd uninstall-service --system"
        if unit.system
        else None,
    )


def _systemd_runs() -> bool:
    return Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None


def _do(step: list[str], failed: type[ApplianceError] = InstallFailed) -> None:
    spelled = " ".join(step)
    try:
        done = subprocess.run(
            step, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise failed(f"'{spelled}' failed: {type(error).__name__}", hint=spelled) from None
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise failed(f"'{spelled}' failed: {words[-1] if words else done.returncode}", hint=spelled)
