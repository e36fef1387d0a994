"""Writes docs/reference/licences.md, which lists the licences in the local images.

python -m ops.licences
"""

import json
import re
import subprocess
import sys
from collections import defaultdict

from packaging.utils import canonicalize_name

from ops import generated
from ops.markdown import table

PAGE = "docs/reference/licences.md"
HEADS = ("Package", "Licence", "Images")
IMAGES = {
    "appliance": "agentlip:local",
    "export": "agentlip-export:local",
    "spark": "agentlip-spark:local",
}
# SPDX identifiers. Permissive licences, and weak copyleft for a package's whole files.
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "HPND", "ISC", "MIT", "MIT-0",
    "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "ZPL-2.1", "Zlib",
}  # fmt: skip
# Names that packages use for licences in older metadata.
SPDX = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
# Packages without a licence in their metadata: read from the licence file in the package.
READ_IN_FILE = {"hdfs-native": "Apache-2.0", "peewee": "MIT", "pyrage": "MIT"}
LIST_PACKAGES = """
import importlib.metadata, json
print(json.dumps([
    [dist.metadata["Name"], dist.metadata.get("License-Expression"), dist.metadata.get("License"),
     *(line.split(" :: ")[-1] for line in dist.metadata.get_all("Classifier", [])
       if line.startswith("License :: OSI Approved :: "))]
    for dist in importlib.metadata.distributions()
]))
"""


def packages(image: str) -> dict[str, str | None]:
    """Return the Python packages that `image` imports, with their licences (None: unknown)."""
    command = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "python3", image]
    installed = json.loads(subprocess.check_output([*command, "-c", LIST_PACKAGES], text=True))
    return {name: licence(name, *terms) for name, *terms in installed}


def licence(package: str, expression: str | None, *names: str | None) -> str | None:
    """Return an SPDX expression from a package's metadata, or from READ_IN_FILE."""
    known = [SPDX.get(name or "", name if name in ALLOWED else None) for name in names]
    in_file = READ_IN_FILE.get(canonicalize_name(package))
    return next(filter(None, [expression, *known, in_file]), None)


def allowed(expression: str | None) -> bool:
    """Return whether at least one alternative has only licences from ALLOWED."""
    alternatives = re.sub(r"[()]", "", expression or "").split(" OR ")
    return any(ALLOWED.issuperset(alternative.split(" AND ")) for alternative in alternatives)


def render() -> dict[str, str]:
    """Render the page. People write the text before the table."""
    images_of: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, image in IMAGES.items():
        for package, terms in packages(image).items():
            images_of[package, str(terms)].append(name)
    rows = [(*package, ", ".join(names)) for package, names in images_of.items()]
    rows.sort(key=lambda row: row[0].lower())
    text = (generated.ROOT / PAGE).read_text("utf-8").partition("| Package")[0]
    return {PAGE: text + table(HEADS, rows) + "\n"}


def list_packages(image: str) -> set[tuple[str, str]]:
    """Return (package, licence) for each row on the written page, for an image name from IMAGES."""
    page = (generated.ROOT / PAGE).read_text("utf-8")
    rows = re.findall(r"(?m)^\| (\S+) \| (.+) \| (.+) \|$", page)
    return {(package, terms) for package, terms, images in rows if image in images.split(", ")}


if __name__ == "__main__":
    sys.exit(generated.write(render()))
