"""The wheel installs one package, `agentlip`, and that package runs without the checkout."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import appliance.sdk
from tests.support.commands import ROOT

pytestmark = pytest.mark.slow

SOURCES = ("appliance", "doctor", "migrations", "pyproject.toml", "setup.py", "README.md")
POST = """
from agentlip.sdk import Client, NewMessage
with Client() as hub:
    channel = hub.create_channel("wheel").channel
    topic = hub.create_topic(channel.id, "first").topic
    hub.send_messages([NewMessage(topic.id, "me", "hello")])
    print(Client.__module__, [each.content_raw for each in hub.tail_messages(topic.id)])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()  # a copy, because a build writes beside the sources
    subprocess.run(["cp", "-r", *[str(ROOT / name) for name in SOURCES], str(source)], check=True)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    built_from = os.environ | {"AGENTLIP_COMMIT": "0123456789abcdef 2026-02-04"}
    subprocess.run(
        [*build, "-w", str(folder), str(source)], check=True, timeout=300, env=built_from
    )
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment: the wheel, and the libraries of this one without its checkout."""
    home = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    install = ["--python", str(home / "bin/python"), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([sys.executable, "-m", "pip", *install, str(wheel)], check=True, timeout=300)
    (packages,) = home.glob("lib/python*/site-packages")
    # Its own .pth files are not read there, so the editable checkout stays invisible.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


class Installed:
    def __init__(self, environment: Path, workspace: Path) -> None:
        self.environment = environment
        self.workspace = workspace
        self.workspace.mkdir()

    def __call__(self, *command: str) -> str:
        done = subprocess.run(
            [str(self.environment / "bin" / command[0]), *command[1:]],
            cwd=self.workspace, capture_output=True, text=True, timeout=120, check=False,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.workspace)},
        )  # fmt: skip
        assert done.returncode == 0, done
        return done.stdout


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Installed:
    return Installed(environment, tmp_path / "workspace")


def test_wheel_holds_only_the_package_agentlip(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        top = {name.partition("/")[0] for name in names}
        (info,) = [name for name in top if name.endswith(".dist-info")]
        assert top - {info} == {"agentlip"}
        assert archive.read(f"{info}/top_level.txt") == b"agentlip\n"
    for file in (
        "doctor/run.py", "export/schemas/events-1.json", "py.typed", "shared/theme.css",
        "ui/static/index.html", "ui/static/icon.svg",
        "ui/static/vendor/VENDOR.toml", "ui/static/vendor/licences.txt",
    ):  # fmt: skip
        assert f"agentlip/{file}" in names
    for store in ("auth", "broker", "courier", "hub", "inbox", "jobs", "outbox"):
        migrations = sorted(path.name for path in (ROOT / "migrations" / store).glob("*.sql"))
        folder = f"agentlip/migrations/{store}/"
        packed = [name.removeprefix(folder) for name in names if name.startswith(folder)]
        assert sorted(name for name in packed if name.endswith(".sql")) == migrations


def test_installed_package_serves_and_the_sdk_posts_to_it(run: Installed) -> None:
    line = f"agentlip {appliance.__version__} (commit 0123456789ab, 2026-02-04)\n"
    assert run("agentlip", "--version") == run("agentlipd", "--version") == line
    run("agentlip", "init")
    run("agentlipd", "up", "--port", "0")
    try:
        assert run("python", "-c", POST) == "agentlip.sdk.client ['hello']\n"
        checks = json.loads(run("agentlip", "doctor", "--json"))
        assert checks
        plugins = json.loads(run("agentlip", "plugin", "list", "--json"))
        assert [plugin["name"] for plugin in plugins] != []
        assert run("python", "-m", "agentlip", "channel", "list").count("wheel") == 1
    finally:
        run("agentlipd", "down")


@pytest.mark.parametrize("name", ["appliance", "doctor", "migrations", "spark", "tests"])
def test_installed_environment_has_none_of_our_other_packages(run: Installed, name: str) -> None:
    find = f"from importlib.util import find_spec; print(find_spec({name!r}))"
    assert run("python", "-c", find) == "None\n"


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
        ("import migrations", "from agentlip import migrations"),
        ("import migrations as files", "from agentlip import migrations as files"),
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
    "source",
    ["import appliance.kernel", "import os, doctor", 'exec("from appliance import x")'],
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
