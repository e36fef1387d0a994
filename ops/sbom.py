"""Writes what an image contains, and the licences of its Python packages.

    python -m ops.sbom IMAGE [FILE]     a CycloneDX document of the image; default: IMAGE.cdx.json
    python -m ops.sbom --licences       docs/reference/licences.md, from the three local images

Needs the images and `syft` (in dev.txt), and no network. The same image makes the same document.
"""

import json
import os
import re
import subprocess
import sys
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
READ_IN_FILE = {"peewee": "MIT", "pyrage": "MIT"}
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


def document(image: str) -> dict[str, Any]:
    """A CycloneDX document: everything that syft finds, with the licences of Python packages."""
    environment = os.environ | {"SYFT_CHECK_FOR_APP_UPDATE": "false"}
    syft = Path(sys.executable).parent / "syft"
    command = [syft, "scan", f"docker:{image}", "--quiet", "--output", "cyclonedx-json"]
    bom: dict[str, Any] = json.loads(subprocess.check_output(command, env=environment))
    del bom["serialNumber"]  # random
    bom["metadata"]["timestamp"] = read_creation(image)
    licences = {normalize(package["name"]): package["licence"] for package in packages(image)}
    for component in bom["components"]:
        known = licences.get(normalize(component["name"]))
        if known and component.get("purl", "").startswith("pkg:pypi/"):
            component["licenses"] = [{"expression": known}]
    return bom


def read_creation(image: str) -> str:
    """When the image was created, as its label has it."""
    template = '{{index .Config.Labels "org.opencontainers.image.created"}}'
    command = ["docker", "image", "inspect", "--format", template, image]
    return subprocess.check_output(command, text=True).strip()


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

Written by `python -m ops.sbom --licences` from the images: [appliance, export and
Spark](../how-to/images.md). A test compares it with them, and fails for a licence that
`ops/sbom.py` does not allow. Versions are in `requirements/`. The images also contain packages of
Debian, whose licences are in `/usr/share/doc` of the images.

| Package | Licence | Images |
| --- | --- | --- |
"""


def main(words: list[str]) -> None:
    if words == ["--licences"]:
        PAGE.write_text(page(IMAGES), encoding="utf-8")
    elif words and not words[0].startswith("-"):
        file = Path(words[1] if len(words) > 1 else re.sub(r"[/:]", "-", words[0]) + ".cdx.json")
        file.write_text(json.dumps(document(words[0]), indent=1) + "\n", encoding="utf-8")
        print(file)
    else:
        sys.exit(f"usage:\n{(__doc__ or '').split(chr(10) * 2)[1]}")


if __name__ == "__main__":
    main(sys.argv[1:])
