"""Writes the modules that list the subsystems' declarations: settings, roles, `agentlip` commands
and checks. The command line reads them without the server, and the server without the checks'
modules: `just settings`.

A test compares.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType

import msgspec
import typer
from typer.main import get_command

import appliance
import doctor
from appliance.checks.check import Check, Cost
from appliance.kernel.declaring_modules import import_named
from appliance.kernel.scopes import Scopes, join
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writer import StoreSettings
from appliance.operations.settings import LogSettings
from appliance.roles import RolesSettings
from appliance.web.settings import HttpSettings, LimitSettings
from appliance.web.socket import SocketSettings
from doctor.all_checks import CHECKS, MODULES
from ops import generated
from ops.size import GENERATED

# The `agentlip --help` headings, in order.
HEADINGS = (
    "Workspace", "Messages", "People", "Work for consumers", "Agent teams, without a server",
    "Other appliances", "Extensions", "Administration",
)  # fmt: skip
# The settings sections that belong to no subsystem.
OF_THE_PROCESS: dict[str, type[msgspec.Struct]] = {
    "http": HttpSettings, "limits": LimitSettings, "socket": SocketSettings, "store": StoreSettings,
    "roles": RolesSettings, "log": LogSettings,
}  # fmt: skip
ROLES = """
import msgspec

NEEDS: dict[str, tuple[str, ...]] = {needs}
\"""The roles that a role needs.\"""

class Roles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    {fields}
"""
CHECKS_TABLE = """
from appliance.checks.cause import Cause

CHEAP = {cheap}
EXPENSIVE = {expensive}
INCLUDED_IN = {included}
\"""A cheap check → the expensive one that includes it.\"""
READY = {ready}
\"""A readiness check → the module that declares it.\"""
DECLARED_CAUSES: tuple[Cause, ...] = {causes}
"""
SETTINGS = """
import msgspec

{imports}

class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    \"""The settings of agentlip.toml, with their defaults.\"""

    {fields}
"""


def render() -> dict[str, str]:
    """Render each file's text, by its path from the root folder."""
    import_named("subsystem", appliance, doctor)
    import_module("appliance.composition")  # has the other subsystems
    subsystems = sorted(Subsystem.__subclasses__(), key=lambda subsystem: subsystem.name)
    texts = {
        "appliance/commands.py": render_commands(),
        "appliance/declared_roles.py": render_roles(subsystems),
        "appliance/declared_scopes.py": render_scopes(),
        "appliance/settings.py": render_settings(subsystems),
        "doctor/declared_checks.py": render_checks(),
    }
    return {
        file: format_code(f'{GENERATED} what the subsystems declare: `just settings`."""\n{text}')
        for file, text in texts.items()
    }


def render_commands() -> str:
    """Render a table: `--help` heading → command name → module, Typer app and help text."""
    table: dict[str, dict[str, tuple[str, str]]] = {heading: {} for heading in HEADINGS}
    for where, app in _apps():
        text = get_command(app).get_short_help_str(200)
        table[app.rich_help_panel][app.info.name] = (where, text)
    return f"\nCOMMANDS = {table}"


def render_roles(subsystems: list[type[Subsystem]]) -> str:
    roles = {subsystem.name: subsystem.role for subsystem in subsystems if subsystem.role}
    fields = [
        f"{name}: bool = {role.is_on}  # {role.about}"
        + (f"; needs {' and '.join(f'`{needed}`' for needed in role.needs)}" if role.needs else "")
        for name, role in roles.items()
    ]
    needs = {name: role.needs for name, role in roles.items() if role.needs}
    return ROLES.format(needs=needs, fields="\n    ".join(fields))


def render_scopes() -> str:
    """Render the scopes that tokens can have: each wire module's `SCOPES.grantable`, joined."""
    wires = import_named("wire", appliance)
    scopes = join(getattr(wire, "SCOPES", Scopes()) for wire in wires)
    return f"\nDECLARED_SCOPES = frozenset({sorted(scopes.grantable)})"


def render_checks() -> str:
    """Render the names by cost, the modules with readiness checks, and the modules' causes."""
    names = {cost: tuple(c.name for c in CHECKS if c.cost is cost) for cost in Cost}
    modules = {check.name: module.__name__ for module in MODULES for check in _checks_in(module)}
    return CHECKS_TABLE.format(
        cheap=names[Cost.CHEAP],
        expensive=names[Cost.EXPENSIVE],
        included={check.includes: check.name for check in CHECKS if check.includes},
        ready={check.name: modules[check.name] for check in CHECKS if check.ready},
        causes=tuple(cause for module in MODULES for cause in getattr(module, "CAUSES", ())),
    )


def _checks_in(module: ModuleType) -> Sequence[Check]:
    return getattr(module, "CHECKS", ())


def render_settings(subsystems: list[type[Subsystem]]) -> str:
    sections = dict(OF_THE_PROCESS)
    for subsystem in subsystems:
        sections |= subsystem.sections
    kinds = [(name, kind.__module__, kind.__name__) for name, kind in sections.items()]
    imports = [f"from {module} import {kind}" for _, module, kind in kinds]
    fields = [f"{name}: {kind} = {kind}()" for name, _, kind in kinds]
    return SETTINGS.format(imports="\n".join(imports), fields="\n    ".join(fields))


def _apps() -> Iterator[tuple[str, typer.Typer]]:
    """Yield the Typer apps that are `agentlip` commands, with their modules."""
    for module in import_named("cli", appliance, doctor):
        for name, value in vars(module).items():
            if isinstance(value, typer.Typer) and isinstance(value.info.name, str):
                yield f"{module.__name__}:{name}", value


def format_code(text: str) -> str:
    for command in (("check", "--fix", "--quiet", "--select", "I", "-"), ("format", "-")):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command],
            cwd=generated.ROOT, input=text, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    return text


if __name__ == "__main__":
    sys.exit(generated.write(render()))
