"""The wheel installs one package, `agentlip`, in which all our modules have its name."""

import subprocess
import sys
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from appliance.kernel.store_declaration import DECLARATIONS
from tests.support.commands import ROOT

pytestmark = pytest.mark.slow

SOURCES = ("appliance", "doctor", "migrations", "docs", "pyproject.toml", "setup.py", "README.md")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()  # a copy, because a build writes beside the sources
    subprocess.run(["cp", "-r", *[str(ROOT / name) for name in SOURCES], str(source)], check=True)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "-w", str(folder), str(source)], check=True, timeout=300)
    (path,) = folder.glob("*.whl")
    return path


def test_wheel_holds_only_the_package_agentlip(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        top = {name.partition("/")[0] for name in names}
        (info,) = [name for name in top if name.endswith(".dist-info")]
        assert top - {info} == {"agentlip"}
        assert archive.read(f"{info}/top_level.txt") == b"agentlip\n"
    for file in (
        "doctor/run.py", "doctor/pages/checks.md", "doctor/pages/checks/host.md",
        "export/schemas/events-1.json", "py.typed", "shared/theme.css",
        "ui/static/index.html", "ui/static/icon.svg",
        "ui/static/vendor/VENDOR.toml", "ui/static/vendor/licences.txt",
    ):  # fmt: skip
        assert f"agentlip/{file}" in names
    for store in DECLARATIONS:
        migrations = sorted(path.name for path in (ROOT / "migrations" / store).glob("*.sql"))
        folder = f"agentlip/migrations/{store}/"
        packed = [name.removeprefix(folder) for name in names if name.startswith(folder)]
        assert sorted(name for name in packed if name.endswith(".sql")) == migrations


def _setup() -> Any:
    spec = spec_from_file_location("agentlip_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from appliance import x", "from agentlip import x"),
        ("if x:\n    from doctor.run import y", "if x:\n    from agentlip.doctor.run import y"),
        ("import appliance", "import agentlip as appliance"),
        ("import migrations", "import agentlip.migrations as migrations"),
        ("import migrations as files", "import agentlip.migrations as files"),
        ('run("-m", "appliance.server")', 'run("-m", "agentlip.server")'),
        ('("doctor.cli:app", "Help.")', '("agentlip.doctor.cli:app", "Help.")'),
        ('hint("doctor.wal_warning_bytes")', 'hint("doctor.wal_warning_bytes")'),
        ('name = "appliance:hooks"', 'name = "appliance:hooks"'),
        ("from .doctor import x", "from .doctor import x"),
    ],
)
def test_only_names_of_modules_are_rewritten(source: str, expected: str) -> None:
    assert _setup().renamed(source, "x.py") == expected


@pytest.mark.parametrize(
    "source", ["import appliance.kernel", "import os, doctor", 'exec("from appliance import x")']
)
def test_build_fails_where_an_old_name_would_be_left(source: str) -> None:
    with pytest.raises(SystemExit, match=r"x\.py"):
        _setup().renamed(source, "x.py")


def test_checkout_imports_the_sdk_by_its_installed_name() -> None:
    program = (
        "import sys, agentlip.sdk, appliance.sdk; from agentlip.sdk.courier import Consumer;"
        " assert agentlip.sdk is appliance.sdk; assert agentlip.sdk.Consumer is Consumer;"
        " print(all(getattr(agentlip.sdk, name) for name in agentlip.sdk.__all__))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.stdout == "True\n", done.stderr
