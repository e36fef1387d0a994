"""Jobs in containers of a real engine: output, limits, cancels, and a kill of the appliance."""

import subprocess

import pytest

from appliance.jobs.container import LABEL
from tests.http.jobs.test_runner import request, run, show, until_output
from tests.support.servedhub import ServedHub
from tests.support.until import until
from tests.system.checkout import ROOT

pytestmark = pytest.mark.container

SOCKET = "/var/run/docker.sock"
WRITING = "echo $COLOR; echo oh >&2; cat /in/a; echo kept > $AGENTLIP_ARTEFACTS/b; touch /in/c"
JOBS = {
    "good": f'command = ["sh", "-c", "{WRITING}; exit 3"]\nmounts = ["given:/in:ro"]\n'
            'environment = { COLOR = "red" }\nmemory_mb = 64\ncpus = 0.5',
    "long": 'command = ["sh", "-c", "echo one; while [ ! -e /in/go ]; do sleep 0.1; done;'
            ' echo two; id -u"]\nmounts = ["given:/in"]\nscopes = ["jobs:read"]',
    "deaf": "command = [\"sh\", \"-c\", \"trap '' TERM; echo ready; sleep 600\"]",
    "missing": 'command = ["no-such-program"]',
    "unknown": 'image = "agentlip-no-such-image:1"\ncommand = []',
}  # fmt: skip


@pytest.fixture(scope="module")
def hub(engine, tmp_path_factory):
    image = subprocess.check_output([ROOT / "ops/engine"], text=True).strip()
    settings = f'[jobs]\ncontainer_socket = "{SOCKET}"\n'
    served = ServedHub(tmp_path_factory.mktemp("containers"), settings=settings)
    for folder in ("jobs", "given"):
        (served.workspace / folder).mkdir()
    (served.workspace / "given/a").write_text("from the workspace\n")
    for name, text in JOBS.items():
        head = "" if text.startswith("image") else f'image = "{image}"\n'
        (served.workspace / "jobs" / f"{name}.toml").write_text(head + text)
    served.start()
    yield served
    served.kill()
    for container in containers(engine, served):
        container.remove(force=True)


def containers(engine, hub):
    return engine.containers.list(all=True, filters={"label": f"{LABEL}={hub.workspace}"})


def test_container_gets_mounts_and_limits_and_leaves_output_and_artefacts(engine, hub):
    ended = run(hub, "good")
    (attempt,) = ended["attempts"]
    assert (ended["state"], attempt["exit_code"], attempt["limits"]) == ("failed", 3, "container")
    assert {"from the workspace", "oh", "red"} < set(attempt["tail"].splitlines())
    assert "Read-only file system" in attempt["tail"]
    assert [each["name"] for each in attempt["artefacts"]] == ["b"]
    assert containers(engine, hub) == []


@pytest.mark.parametrize(("job", "error"), [("missing", "no-such-program"), ("unknown", "No such")])
def test_container_that_does_not_start_has_failed_with_the_reason(engine, hub, job, error):
    ended = run(hub, job)
    assert (ended["state"], ended["exit_code"]) == ("failed", 127)
    assert error in ended["attempts"][0]["tail"]
    assert containers(engine, hub) == []


def test_container_is_ended_by_a_cancel(engine, hub):
    run_id = request(hub, "deaf")
    until_output(hub, run_id, "ready")
    hub.http.post(f"/api/v1/jobs/runs/{run_id}/cancel", {})
    assert show(hub, run_id, 30)["state"] == "cancelled"
    assert containers(engine, hub) == []


def test_container_survives_a_kill_of_the_appliance_and_is_adopted(engine, hub):
    run_id = request(hub, "long")
    until_output(hub, run_id, "one")
    (container,) = containers(engine, hub)
    hub.kill()
    hub.start()
    token = container.exec_run(["sh", "-c", "echo $AGENTLIP_TOKEN"]).output.decode().strip()
    until(lambda: hub.connect(token).get("/api/v1/jobs").status == 200, 30, "its token is known")
    (hub.workspace / "given/go").touch()
    ended = show(hub, run_id, 30)
    assert (ended["state"], ended["attempts_made"]) == ("succeeded", 1)
    assert ended["attempts"][0]["tail"].splitlines()[:2] == ["one", "two"]
    assert hub.connect(token).get("/api/v1/jobs").status == 401
    assert containers(engine, hub) == []


def test_container_that_is_gone_makes_its_run_lost(engine, hub):
    (hub.workspace / "given/go").unlink(missing_ok=True)
    run_id = request(hub, "long")
    until_output(hub, run_id, "one")
    hub.kill()
    containers(engine, hub)[0].remove(force=True)
    hub.start()
    assert show(hub, run_id, 30)["state"] == "lost"
