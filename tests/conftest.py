"""What every test run needs: settings for containers, and no test left out unnoticed."""

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Where /.dockerenv exists (a CI machine that is itself a container), testcontainers would
# look for published ports on the bridge; they are on the loopback. Ryuk's image can't be
# pulled everywhere: `ops/engine sweep` removes what a killed run leaves.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
os.environ.setdefault("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
os.environ.setdefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
os.environ.setdefault("TC_POOLING_INTERVAL", "0.1")

# Without compiled files each of a few thousand processes would compile the whole program again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What the product does on a CI machine (a member key for one run, hooks off) is tested by
# saying so; everything else is tested as on a machine that stays, wherever the tests run.
for name in ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI", "JENKINS_URL"):
    os.environ.pop(name, None)

# A user may have started an appliance from this clone and named it in the environment.
# No test finds it: each makes a workspace of its own in a temporary directory.
for name in [name for name in os.environ if name.startswith("AGENTLIP_")]:
    del os.environ[name]
os.environ["AGENTLIP_CEILING_DIRECTORIES"] = str(Path(__file__).parents[1])

# A machine that is busy makes an example slow; no test asserts how long it takes.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

MUST_RUN = {"container": "CONTAINERS", "nix": "NIX", "spark": "SPARK"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A served hub of this module's own."""
    from tests.support.servedhub import serve  # not where only Spark is installed

    with serve(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture(autouse=True)
def no_request():
    """As in a greenlet of a loop: a request that a test makes in this thread ends with the test."""
    from appliance.kernel import caller  # not before a test may set the environment

    kept = caller.request.set({})
    yield
    caller.request.reset(kept)


@pytest.fixture
def workspace(tmp_path):
    """A complete workspace without rows, for tests that damage it."""
    from tests.doctor.workspace import WorkspaceFixture

    return WorkspaceFixture(tmp_path)


@pytest.fixture
def enterable(tmp_path):
    """Started as root, a plugin is another user, who must enter the folders above the workspace."""
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 1:
            folder.chmod(0o711)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Modules and tests stay until the end: to look for garbage among them takes a quarter of the
    time here, and later as much again with each full collection."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files come first, so that at the end no worker runs one while the others are idle."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Where containers, Nix or Spark must run (`ops/test all` says so), leaving out is failing."""
    report = yield
    for marker, variable in MUST_RUN.items():
        must_run = os.environ.get(f"{variable}_MUST_RUN") == "1"
        if report.skipped and must_run and item.get_closest_marker(marker):
            report.outcome = "failed"
            report.longrepr = f"left out where {marker} tests must run: {call.excinfo.value}"
    return report
