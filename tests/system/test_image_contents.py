"""What is in the images: size, labels, layers, processes, packages and their licences."""

import os
import re
import shutil
import subprocess

import pytest

from ops import licences, release
from tests.contract.test_walls import ROOT, tracked
from tests.support.gold_tables import did, write
from tests.system.checkout import CHECKOUT
from tests.system.conftest import ADDRESSES

pytestmark = [pytest.mark.container, pytest.mark.slow]
SIZE_BYTES_MAX = 220_000_000
CODE_BYTES_MAX = 14_000_000
CONTEXT = ("Dockerfile", ".dockerignore", "README.md", "pyproject.toml", "setup.py", "appliance",
           "doctor", "migrations", "requirements", "ops", "docs")  # fmt: skip
CHANGED = f"agentlip:test-{CHECKOUT}-changed"
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "appliance/__init__.py").read_text())[1]


def test_the_image_is_small(engine, image):
    assert engine.images.get(image).attrs["Size"] < SIZE_BYTES_MAX


@pytest.mark.parametrize("name", ["image", "export_image"])
def test_labels_have_the_version_and_where_it_comes_from(engine, request, name):
    labels = engine.images.get(request.getfixturevalue(name)).labels
    labels = {key.removeprefix("org.opencontainers.image."): labels[key] for key in labels}
    revision = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    assert labels["title"] == "Agentlip Appliance"
    assert labels["description"]
    assert (labels["version"], labels["revision"]) == (VERSION, revision)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels["created"])
    assert labels["licenses"] == "MIT"
    assert labels["source"] == ADDRESSES["IMAGE_SOURCE"]
    assert labels["documentation"] == ADDRESSES["IMAGE_DOCUMENTATION"]


def test_version_names_the_commit(engine, image):
    command = ["git", "log", "-1", "--format=(commit %H, %cs)"]
    revision = subprocess.check_output(command, cwd=ROOT, text=True).strip()
    output = engine.containers.run(image, ["--version"], entrypoint=["agentlip"], remove=True)
    assert output.decode() == f"agentlip {VERSION} {revision[:20]}{revision[48:]}\n"


def test_archive_of_a_release_loads_the_image(engine, image, tmp_path):
    version = f"test-{CHECKOUT}-release"
    try:
        release.save_image(ROOT, tmp_path, "agentlip", version, None)
        made = engine.images.get(f"agentlip:{version}").id
        engine.images.remove(f"agentlip:{version}", force=True)
        (archive,) = tmp_path.iterdir()
        subprocess.run(["docker", "load", "--quiet", "--input", archive], check=True, timeout=300)
        assert engine.images.get(f"agentlip:{version}").id == made
    finally:
        engine.images.remove(f"agentlip:{version}", force=True)


# -- layers -----------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    """The tree once more, with other file times."""
    for file in tracked():
        path = file.relative_to(ROOT)
        if path.parts[0] in CONTEXT:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, tmp_path / path)
    return tmp_path


def build_changed(tree, name):
    """The tag of an image of `tree` with a comment more in the file `name`."""
    with (tree / name).open("a") as file:
        file.write("# changed\n")
    command = [tree / "ops/image", CHANGED]
    commit = subprocess.check_output(["git", "log", "-1", "--format=%H %cs"], cwd=ROOT, text=True)
    environment = os.environ | {"COMMIT": commit.strip()}  # the tree has no history
    return subprocess.check_output(command, text=True, env=environment).strip()


def layers(engine, tag):
    return engine.images.get(tag).attrs["RootFS"]["Layers"]


def test_only_changed_code_changes_layers_and_only_the_small_one(engine, image, tree):
    try:
        # setup.py is not installed: the code is built again, from equal files.
        again = build_changed(tree, "setup.py")
        assert layers(engine, again) == layers(engine, image)

        changed = build_changed(tree, "appliance/settings.py")
        *before, code_before = layers(engine, image)
        *after, code_after = layers(engine, changed)
        assert after == before
        assert code_after != code_before
        sizes = [each["Size"] for each in engine.images.get(changed).history() if each["Size"]]
        assert sizes[0] < CODE_BYTES_MAX
    finally:
        engine.images.remove(CHANGED, force=True)


# -- processes --------------------------------------------------------------------------


def documented_processes():
    """(depth, program) of the tree in the documentation."""
    text = (ROOT / "docs/how-to/images.md").read_text()
    lines = re.search(r"(?ms)^```text\n(tini .*?)^```", text)[1].splitlines()
    return [(len(re.match(r"[ └─]*", line)[0]) // 3, line.split()[-1]) for line in lines]


def test_processes_are_the_documented_ones(box, volume):
    appliance = box(volume()).start()
    running = appliance.wrapped.top(ps_args="-o pid,ppid,args")["Processes"]
    parents = {pid: parent for pid, parent, _ in running}

    def depth(pid):
        return 1 + depth(parents[pid]) if parents[pid] in parents else 0

    tree = [(depth(pid), command) for pid, _, command in running]
    expected = documented_processes()
    assert len(tree) == len(expected)
    for (depth_running, command), (depth_expected, program) in zip(tree, expected, strict=True):
        assert depth_running == depth_expected
        assert program in command.split()


# -- packages ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "fixture"), [("appliance", "image"), ("export", "export_image")])
def test_licences_are_allowed_and_listed(request, name, fixture):
    packages = licences.packages(request.getfixturevalue(fixture))
    assert [name for name in packages if not licences.allowed(packages[name])] == []
    assert set(packages.items()) == licences.list_packages(name)


# -- the image with Parquet -------------------------------------------------------------


def test_export_image_writes_parquet(export_box, volume):
    appliance = export_box(volume()).start()
    appliance.topic()
    appliance.sh("agentlip export segments && agentlip export snapshot")
    appliance.sh("agentlip export verify /data/.agentlip/export")
    assert "date=" in appliance.sh("find /data/.agentlip/export -name '*.parquet'")


def test_export_image_makes_reports(engine, export_image, tmp_path):
    tmp_path.chmod(0o755)  # the image runs as another user
    write(tmp_path, {"2026-11-19": [did("ann", 5)]}, {})
    script = "agentlip report html --gold /gold --out /tmp/page.html && grep -c ann /tmp/page.html"
    engine.containers.run(
        export_image, [script], entrypoint=["sh", "-ec"], volumes=[f"{tmp_path}:/gold:ro"],
        remove=True, network_mode="none",
    )  # fmt: skip
