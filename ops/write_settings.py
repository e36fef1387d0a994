"""Writes ops/agentlip.toml, the annotated reference: every setting with its default. Also writes
nix/roles.json, the roles for the NixOS module.

The words come from each field's comment in the code, so the two can't differ; a test compares. Run
it after adding a setting: `just settings`.
"""

import ast
import inspect
import json
import sys
import textwrap
from typing import Any

import msgspec

from appliance.roles import NEEDS, RolesSettings
from appliance.settings import Settings
from ops import generated

FILE = "ops/agentlip.toml"
WIDTH = 96
HEAD = """\
# Every setting of the appliance with its default: copy what you change into agentlip.toml beside
# .agentlip/. Unknown settings are refused with their path.
#
# Later wins: this file, then the environment (AGENTLIP_HTTP__PORT=8080), then flags.
# Units end the names: _seconds, _days, _bytes, _max. Secrets come from files (…_file).
# Made by ops/write_settings.py from the code; not edited by hand.
"""


def render() -> dict[str, str]:
    """Render each file's text, by its path from the root folder."""
    sections = [
        render_section(field.encode_name, field.type) for field in msgspec.structs.fields(Settings)
    ]
    roles = {
        role.name: {"isOn": role.default, "needs": NEEDS.get(role.name, ())}
        for role in msgspec.structs.fields(RolesSettings)
    }
    return {
        FILE: "\n".join([HEAD, *sections]),
        "nix/roles.json": json.dumps(roles, indent=2) + "\n",
    }


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
    """Return the struct's docstring without the section name before it."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return text.split("]", 1)[-1].lstrip("`:. ") if text.startswith(("[", "`[")) else text


def notes(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return each field's note: a comment on its line, or a string below it."""
    above = kind.__base__
    comments = {} if above is msgspec.Struct else notes(above)
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    [klass] = ast.parse(source).body
    assert isinstance(klass, ast.ClassDef)
    last = ""
    for node in klass.body:
        if isinstance(node, ast.AnnAssign):
            last = ast.unparse(node.target)
            behind = lines[node.end_lineno - 1][node.end_col_offset :]
            comments[last] = behind.partition("#")[2].strip()
        elif isinstance(node, ast.Expr) and last:
            comments[last] = inspect.cleandoc(ast.literal_eval(node.value))
    return comments


def comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(" ".join(text.split()), WIDTH)]


def toml(value: Any) -> str:
    """Write booleans, numbers, strings and lists, which look alike in TOML and JSON."""
    if isinstance(value, msgspec.Struct):
        entries = msgspec.structs.asdict(value).items()
        return f"{{ {', '.join(f'{name} = {toml(entry)}' for name, entry in entries)} }}"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


if __name__ == "__main__":
    sys.exit(generated.write(render()))
