"""Unit tests are found by name: tests/unit/ has the folders of appliance/, and the files of each
folder are named after modules."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.contract.test_walls import ROOT

UNIT = ROOT / "tests" / "unit"
EXCEPTIONS = {
    "bench": "tests of tests/bench, which is no part of the product",
}


def folders() -> list[str]:
    """The folders with unit tests, relative to tests/unit; "." for that folder itself."""
    packages = {file.parent.relative_to(UNIT).as_posix() for file in UNIT.rglob("test_*.py")}
    return sorted(packages - EXCEPTIONS.keys())


def modules(package: Path) -> set[str]:
    """Names of the modules and packages directly in `package`."""
    files = {file.stem for file in package.glob("*.py")} - {"__init__"}
    return files | {file.parent.name for file in package.glob("*/__init__.py")}


def misnamed(files: Iterable[str], of: set[str]) -> list[str]:
    """The files that are neither test_<module>.py nor test_<module>_<aspect>.py."""
    return [
        file
        for file in files
        if not any(file == f"test_{name}.py" or file.startswith(f"test_{name}_") for name in of)
    ]


@pytest.mark.parametrize("folder", folders())
def test_files_with_unit_tests_are_named_after_modules(folder):
    package = ROOT / "appliance" / folder
    assert package.is_dir(), f"tests/unit/{folder} has no package in appliance/"
    files = sorted(file.name for file in (UNIT / folder).glob("test_*.py"))
    assert misnamed(files, modules(package)) == []
