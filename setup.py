"""Builds the wheel: the folders of this repository under the one name `agentlip`.

A checkout imports `appliance`, `doctor` and `migrations`. These names are too general for
somebody else's environment, so the installed copy has other ones (docs/decisions/0061):

    appliance/kernel/store.py  →  agentlip/kernel/store.py
    doctor/run.py              →  agentlip/doctor/run.py
    migrations/hub/0001_….sql  →  agentlip/migrations/hub/0001_….sql

Imports and the strings that name a module are rewritten while files are copied. The build fails
if an old name is left in an import.
"""

import ast
import os
import re
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
INSTALLED = {
    "appliance": "agentlip",
    "doctor": "agentlip.doctor",
    "migrations": "agentlip.migrations",
}
PAGES = {"agentlip.doctor.pages": "docs/reference"}
"""Pages of the documentation that `agentlip doctor explain` prints."""
OLD = "|".join(INSTALLED)
FROM = re.compile(rf"^(\s*from )({OLD})(?=[. ])", re.MULTILINE)
IMPORT = re.compile(rf"^(\s*)import ({OLD})(?: as (\w+))?$", re.MULTILINE)
STRING = re.compile(rf'"({OLD})((?:\.\w+)+)((?::\w+)?)"')
IN_TEXT = re.compile(rf"\b(from|import) ({OLD})\b")


class BuildPackage(build_py):
    def build_module(self, module: Any, module_file: Any, package: Any) -> Any:
        outfile, copied = super().build_module(module, module_file, package)
        path = Path(outfile)
        source = renamed(path.read_text("utf-8"), str(module_file))
        if package == "agentlip" and module == "build":
            source = source.replace("$Format:%H %cs$", built_from())
        path.write_text(source, "utf-8")
        return outfile, copied


def built_from() -> str:
    """Return the commit and its date, from the environment or from Git; else the placeholder."""
    given = os.environ.get("AGENTLIP_COMMIT", "")
    if not given and (ROOT / ".git").exists() and which("git"):
        words = ["git", "-C", str(ROOT), "log", "-1", "--format=%H %cs"]
        given = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return given or "$Format:%H %cs$"


def renamed(source: str, name: str) -> str:
    """Return `source` with the names that it has when it is installed."""
    source = FROM.sub(lambda match: match[1] + INSTALLED[match[2]], source)
    source = IMPORT.sub(
        lambda match: f"{match[1]}import {INSTALLED[match[2]]} as {match[3] or match[2]}", source
    )
    source = STRING.sub(_module_name, source)
    for node in ast.walk(ast.parse(source)):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and "\n" not in text and IN_TEXT.search(text):
            raise SystemExit(f"{name}: code in a string has to use __package__: {text!r}")
        if set(_imported(node)) & set(INSTALLED):
            raise SystemExit(f"{name}: use 'from … import …' instead of '{ast.unparse(node)}'")
    return source


def _module_name(match: re.Match[str]) -> str:
    """Replace only the name of a module: "doctor.wal_warning_bytes" is the name of a setting."""
    path = ROOT / (match[1] + match[2]).replace(".", "/")
    if not (path.is_dir() or path.with_suffix(".py").is_file()):
        return match[0]
    return f'"{INSTALLED[match[1]]}{match[2]}{match[3]}"'


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [(node.module or "").partition(".")[0]]
    return []


def installed(package: str) -> str:
    folder, dot, rest = package.partition(".")
    return INSTALLED[folder] + dot + rest


if __name__ == "__main__":
    setup(
        cmdclass={"build_py": BuildPackage},
        package_dir={name: folder for folder, name in INSTALLED.items()} | PAGES,
        # Also folders that have only data, such as appliance/ui/static.
        packages=[
            installed(package)
            for package in find_namespace_packages(
                include=[*INSTALLED, *(f"{name}.*" for name in INSTALLED)],
                exclude=["*__pycache__*"],
            )
        ]
        + list(PAGES),
    )
