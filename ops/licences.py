"""Writes docs/reference/licences.md, the licences of the Python packages in the local images:

python -m ops.licences
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/licences.md"
IMAGES = {
    "appliance": "agentlip:local",
    "export": "agentlip-export:local",
    "spark": "agentlip-spark:local",
}
# SPDX identifiers. Permissive licences, and weak copyleft for whole files of a package.
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "HPND", "ISC", "MIT", "MIT-0",
    "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "ZPL-2.1", "Zlib",
}  # fmt: skip
# Names that packages use for licences in older metadata.
SPDX = {
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "Dual License": "Apache-2.0 OR BSD-3-Clause",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "http://www.apache.org/licenses/LICENSE-2.0": "Apache-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
# Packages without a licence in their metadata: read from the licence file in the package.
READ_IN_FILE = {"hdfs-native": "Apache-2.0", "peewee": "MIT", "pyrage": "MIT"}
LIST_PACKAGES = """
import importlib.metadata, json
print(json.dumps([
    {"name": each.metadata["Name"], "version": each.version,
     "expression": each.metadata.get("License-Expression"),
     "licence": each.metadata.get("License"),
     "classifiers": [line.split(" :: ")[-1] for line in each.metadata.get_all("Classifier", [])
                     if line.startswith("License :: OSI Approved :: ")]}
    for each in importlib.metadata.distributions()
]))
"""


def packages(image: str) -> list[dict[str, Any]]:
    """The Python packages that `image` imports: name, version and licence (None: unknown)."""
    command = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "python3", image]
    installed = json.loads(subprocess.check_output([*command, "-c", LIST_PACKAGES], text=True))
    return [
        {"name": package["name"], "version": package["version"], "licence": licence(package)}
        for package in sorted(installed, key=lambda package: normalize(package["name"]))
    ]


def licence(package: dict[str, Any]) -> str | None:
    """An SPDX expression from the metadata of a package, or from READ_IN_FILE."""
    if package["expression"]:
        return str(package["expression"])
    for name in [package["licence"], *package["classifiers"]]:
        if known := SPDX.get(name or "", name if name in ALLOWED else None):
            return known
    return READ_IN_FILE.get(normalize(package["name"]))


def allowed(expression: str | None) -> bool:
    """Whether every licence of one of the alternatives is in ALLOWED."""
    alternatives = re.sub(r"[()]", "", expression or "").split(" OR ")
    return any(ALLOWED.issuperset(alternative.split(" AND ")) for alternative in alternatives)


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def page(images: dict[str, str]) -> str:
    """The page of licences of `images`: its names, and the tags to look in."""
    rows: dict[str, tuple[str, list[str]]] = {}
    for name, image in images.items():
        for package in packages(image):
            row = rows.setdefault(package["name"], (str(package["licence"]), []))
            row[1].append(name)
    lines = [f"| {name} | {terms} | {', '.join(where)} |" for name, (terms, where) in rows.items()]
    return HEAD + "".join(f"{line}\n" for line in sorted(lines, key=str.lower))


def list_packages(image: str) -> set[tuple[str, str]]:
    """(package, licence) of each row of the written page for an image: a name of IMAGES."""
    rows = re.findall(r"(?m)^\| (\S+) \| (.+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"))
    return {(package, terms) for package, terms, images in rows if image in images.split(", ")}


HEAD = """\
# Licences of the Python packages in the images

Written by `python -m ops.licences` from the images: [appliance, export and
Spark](../how-to/images.md). A test compares it with them, and fails for a licence that
`ops/licences.py` does not allow. Versions are in `requirements/`. The images also contain packages
of Debian, whose licences are in `/usr/share/doc` of the images.

| Package | Licence | Images |
| --- | --- | --- |
"""


if __name__ == "__main__":
    PAGE.write_text(page(IMAGES), encoding="utf-8")
