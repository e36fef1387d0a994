"""Writes ops/agentlip.toml, the annotated reference: every setting with its default. Also writes
nix/roles.json, the roles for the NixOS module.

The words are those beside each field in the code, so the two can't differ; a test
compares. Run it after adding a setting: `just settings`.
"""

import ast
import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

import msgspec

from appliance.roles import NEEDS, RolesSettings
from appliance.settings import Settings

FILE = Path(__file__).parent / "agentlip.toml"
ROLES_FILE = Path(__file__).parents[1] / "nix" / "roles.json"
WIDTH = 96
HEAD = """\
# Every setting of the appliance with its default: copy what you change into agentlip.toml
# beside .agentlip/. What is unknown is refused with its path.
#
# Later wins: this file, then the environment (AGENTLIP_HTTP__PORT=8080), then flags.
# Units end the names: _seconds, _bytes, _max. Secrets come from files (…_file).
# Made by ops/write_settings.py from the code; not edited by hand.
"""


def render() -> str:
    """The whole file's text."""
    sections = [
        render_section(field.encode_name, field.type) for field in msgspec.structs.fields(Settings)
    ]
    return "\n".join([HEAD, *sections])


def render_roles() -> str:
    """Each role, with the roles that it needs."""
    roles = {role: NEEDS.get(role, ()) for role in RolesSettings.__struct_fields__}
    return json.dumps(roles, indent=2) + "\n"


def render_section(name: str, kind: type[msgspec.Struct]) -> str:
    words = notes(kind)
    lines = [*comment(summary(kind)), f"[{name}]"]
    for field in msgspec.structs.fields(kind):
        lines += comment(words.get(field.name, ""))
        value = field.default
        if value is None:
            lines.append(f"# {field.encode_name} =")
        else:
            lines.append(f"{field.encode_name} = {toml(value)}")
    return "\n".join(lines) + "\n"


def summary(kind: type[msgspec.Struct]) -> str:
    """The struct's docstring without the section's name before it."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return text.split("]", 1)[-1].lstrip("`:. ") if text.startswith(("[", "`[")) else text


def notes(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What stands beside each field: a comment on its line, or a string below it."""
    above = kind.__base__
    inherited = {} if above is msgspec.Struct else notes(above)
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    [klass] = ast.parse(source).body
    assert isinstance(klass, ast.ClassDef)
    comments: dict[str, str] = inherited
    last = ""
    for node in klass.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
            comments[last] = (
                lines[node.end_lineno - 1][node.end_col_offset :].partition("#")[2].strip()
            )
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and last:
            comments[last] = inspect.cleandoc(str(node.value.value))
    return comments


def comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(" ".join(text.split()), WIDTH)]


def toml(value: Any) -> str:
    """Booleans, numbers, strings and lists are written in TOML as in JSON."""
    if isinstance(value, msgspec.Struct):
        entries = msgspec.structs.asdict(value).items()
        return f"{{ {', '.join(f'{name} = {toml(entry)}' for name, entry in entries)} }}"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


if __name__ == "__main__":
    for file, text in ((FILE, render()), (ROLES_FILE, render_roles())):
        file.write_text(text, encoding="utf-8")
        print(file)
