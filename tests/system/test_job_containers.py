"""Jobs in containers of a real engine: output, limits, cancels, and a kill of the appliance."""

import subprocess

import pytest

from appliance.checks.context import Context
from appliance.checks.settings import DoctorSettings
from appliance.jobs.handles import LABEL
from appliance.kernel.clock import HOUR_MS, SystemClock
from tests.doctor.workspace import check
from tests.http.jobs.test_kills import KILLS, contained, kill_at_random
from tests.http.jobs.test_runner import request, run, show, until_output
from tests.support.clock import FakeClock
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
    "seeing": 'command = ["sh", "-c", "cat $AGENTLIP_EVENT_FILE"]\n[[on]]\nsource = "hub"\n'
              'event = "message.created"\nwhere = "seen"',
    "missing": 'command = ["no-such-program"]',
    "unknown": 'image = "agentlip-no-such-image:1"\ncommand = []',
}  # fmt: skip


SETTINGS = f'[jobs]\ncontainer_socket = "{SOCKET}"\n'


@pytest.fixture(scope="module")
def base_image(engine):
    return subprocess.check_output([ROOT / "ops/engine"], text=True).strip()


@pytest.fixture(scope="module")
def hub(engine, base_image, tmp_path_factory):
    served = ServedHub(tmp_path_factory.mktemp("containers"), settings=SETTINGS)
    for folder in ("jobs", "given"):
        (served.workspace / folder).mkdir()
    (served.workspace / "given/a").write_text("from the workspace\n")
    for name, text in JOBS.items():
        head = "" if text.startswith("image") else f'image = "{base_image}"\n'
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
    assert find_orphans(hub) == []
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


def find_orphans(hub):
    """The objects of the findings of the doctor in an hour."""
    later = FakeClock(SystemClock().now_ms() + HOUR_MS)
    with Context(hub.datadir, DoctorSettings(), later) as context:
        findings = list(check("jobs.attempts").find(context))
    return [finding.subject for finding in findings if finding.problem == "orphan"]


def test_doctor_finds_a_container_that_was_not_removed(engine, base_image, hub):
    labels = {LABEL: str(hub.workspace)}
    container = engine.containers.create(base_image, name="agentlip-run_1-1", labels=labels)
    assert find_orphans(hub) == ["container agentlip-run_1-1"]
    container.remove()
    assert find_orphans(hub) == []


def test_kills_leave_no_container_and_no_overlap(engine, base_image, tmp_path):
    hub = ServedHub(tmp_path, settings=SETTINGS)
    try:
        assert kill_at_random(hub, base_image, SOCKET)["succeeded"] > KILLS / 2
        assert containers(engine, hub) == []
        assert contained(hub, "state IN ('succeeded', 'failed')") > 0
    finally:
        hub.kill()
        for container in containers(engine, hub):
            container.remove(force=True)


def test_container_gets_the_event_that_started_it(hub):
    topic = hub.topic(hub.channel("seen"), "jobs")
    path = "/api/v1/jobs/seeing/history"
    runs = until(lambda: hub.send(topic) and hub.http.get(path).body["runs"], 60, "a run")
    shown = until(lambda: over(show(hub, runs[-1]["id"])), 60, "its end")
    assert shown["state"] == "succeeded", shown
    assert '"name":"message.created","where":"seen"' in shown["attempts"][0]["tail"]


def over(shown):
    return shown if shown["ended_at"] else None
