"""Builds the TypeScript client.

`python -m ops.typescript_client FOLDER` writes agentlip-appliance-VERSION.tgz into FOLDER. Needs
Node.js 20 with npm, and a network. The types come from the OpenAPI description of all routes.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from appliance import __version__
from ops import node
from ops.generated import ROOT

INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def build(source: Path, target: Path) -> Path:
    """Build the package in `source`, without changing the folder, and return its tarball in
    `target`."""
    node.put_on_path()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "client"
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
        node.run(folder, *INSTALL)
        write_types(folder)
        node.run(folder, "node_modules/.bin/tsc")
        node.run(folder, "npm", "version", __version__, "--no-git-tag-version")
        name = node.run(folder, "npm", "pack", "--silent", "--pack-destination", str(target))
    return target / name.strip().rpartition("\n")[2]


def write_types(source: Path) -> None:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        node.run(ROOT, sys.executable, "-m", "ops.openapi", file.name)
        command = ("node_modules/.bin/openapi-typescript", file.name, "--output", "src/schema.ts")
        node.run(source, *command, "--default-non-nullable=false")


if __name__ == "__main__":
    print(build(ROOT / "clients/typescript", Path(sys.argv[1]).absolute()))
