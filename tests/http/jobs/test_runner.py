"""Jobs that run below a served appliance: their ends, output, token, and kills of the appliance."""

import json
import os
import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.commands import agentlip, command, environment
from tests.support.database_files import read
from tests.support.servedhub import ServedHub
from tests.support.until import until

pytestmark = pytest.mark.slow

JOBS = {
    "hourly": 'command = ["true"]\ncron = "0 * 1 1 *"',
    "good": 'command = ["sh", "-c", "echo $JOB_COLOR $SECRET; echo x > $AGENTLIP_ARTEFACTS/a"]\n'
            'environment = { JOB_COLOR = "red" }\nsecrets = { SECRET = "secret.txt" }',
    "whispering": 'command = ["sh", "-c", "printf hush; sleep 0.1; echo -hush now $SECRET;'
                  ' echo $SECRET > $AGENTLIP_ARTEFACTS/secret"]\n'
                  'secrets = { SECRET = "secret.txt" }',
    "messy": 'command = ["sh", "-c", "cd $AGENTLIP_ARTEFACTS; echo 1 > a; mkdir c; echo 2 > c/d;'
             ' head -c 100 /dev/zero > b"]\nartefact_bytes_max = 10',
    "many": 'command = ["sh", "-c", "cd $AGENTLIP_ARTEFACTS; touch $(seq 101 205)"]',
    "bad": 'command = ["sh", "-c", "echo oh; exit 7"]',
    "sleepy": 'command = ["sh", "-c", "echo ready; setsid sleep 600 & sleep 600"]\nretries = 1\n'
              'retry_on = ["lost"]\n[backoff]\ninitial_seconds = 0.01',
    "listening": 'command = ["true"]\n[[on]]\nsource = "hub"\nevent = "message.*"\nwhere = "ops"',
    "posting": 'command = ["false"]\ntopic = "news/jobs"',
    "asking": 'command = ["true"]\n[ask]\ntext = "Go?"',
    "slow": 'command = ["sleep", "600"]\ntimeout_seconds = 0.2',
    "missing": 'command = ["no-such-program"]',
    "loud": 'command = ["sh", "-c", "yes 0123456789 | head -c 300000"]\noutput_bytes_max = 1000',
    "lenient": 'command = ["sh", "-c", "exit 10"]\nsuccess_codes = [0, 10]',
    "caller": 'command = ["sh", "-c", "echo $AGENTLIP_TOKEN | tee $AGENTLIP_ARTEFACTS/token;'
              ' sleep 600"]\nscopes = ["jobs:read"]',
}  # fmt: skip


ECHO = """command = ["true"]
topic = "echo/jobs"
{more}
[[on]]
source = "hub"
event = "message.created"
where = "echo"
debounce_seconds = 0
own_events = {own}
"""
JOBS |= {
    "echoing": ECHO.format(own="false", more=""),
    "looping": ECHO.format(own="true", more="").replace("echo", "loop"),
}
JOBS["seeing"] = """command = ["sh", "-uc", "echo $AGENTLIP_EVENT; cat $AGENTLIP_EVENT_FILE"]
[[on]]
source = "hub"
event = "message.created"
where = "seen"
"""
TIDY = """command = ["sh", "-c", "trap 'echo bye; exit {code}' TERM; echo ready; sleep 600 & wait"]
retries = 1
retry_on = ["lost"]
"""
JOBS |= {"tidy": TIDY.format(code=0), "untidy": TIDY.format(code=3)}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    served = ServedHub(tmp_path_factory.mktemp("runner"))
    folder = served.workspace / "jobs"
    folder.mkdir()
    for name, text in JOBS.items():
        (folder / f"{name}.toml").write_text(text)
    (served.workspace / "secret.txt").write_text("hush-hush\n")
    served.start()
    yield served
    served.kill()


def request(hub, job):
    answer = hub.http.post(f"/api/v1/jobs/{job}/runs", {})
    assert answer.status == 201, answer.body
    return answer.body["run"]["id"]


def show(hub, run_id, wait=0):
    return hub.http.get(f"/api/v1/jobs/runs/{run_id}?wait={wait}").body["run"]


def run(hub, job):
    return show(hub, request(hub, job), 30)


def until_output(hub, run_id, text):
    def read():
        path = f"/api/v1/jobs/runs/{run_id}/output?wait=1"
        answer = hub.http.get(path).body
        return answer.get("text") if text in answer.get("text", "") else None

    return until(read, 30, "it has written")


@pytest.mark.parametrize(
    ("job", "state", "code", "error"),
    [
        ("good", "succeeded", 0, None),
        ("lenient", "succeeded", 10, None),
        ("bad", "failed", 7, "exit code 7"),
        ("slow", "failed", -15, "timed out after 0.2 s"),
        ("missing", "failed", 127, "exit code 127"),
    ],
)
def test_run_ends_as_its_command_does(hub, job, state, code, error):
    ended = run(hub, job)
    assert (ended["state"], ended["exit_code"], ended["error"]) == (state, code, error)


def test_output_and_artefacts_are_kept(hub):
    ended = run(hub, "good")
    (attempt,) = ended["attempts"]
    assert attempt["tail"] == "red ***\n"
    assert [(file["name"], file["bytes"]) for file in attempt["artefacts"]] == [("a", 2)]
    assert until_output(hub, ended["id"], "red") == "red ***\n"
    loud = run(hub, "loud")
    (attempt,) = loud["attempts"]
    assert attempt["output_bytes"] == 300_000
    assert (hub.datadir.dir / "jobs" / loud["id"] / "1.log").stat().st_size == 1000
    assert attempt["tail"].endswith("0123456789\n01234567")


def test_secret_is_masked_wherever_the_output_goes(hub):
    ended = run(hub, "whispering")
    folder = hub.datadir.dir / "jobs" / ended["id"]
    shown = json.dumps(show(hub, ended["id"]))
    streamed = hub.http.get(f"/api/v1/jobs/runs/{ended['id']}/events").raw.decode()
    logged = agentlip("jobs", "logs", ended["id"], cwd=hub.workspace).out
    for text in (shown, streamed, logged, (folder / "1.log").read_text()):
        assert "***" in text
        assert "hush" not in text
    assert (folder / "1.log").stat().st_mode & 0o777 == 0o600
    assert (folder / "1" / "secret").read_text() == "hush-hush\n", "artefacts are not changed"


def test_artefacts_that_fit_are_kept_and_the_others_named(hub):
    ended = run(hub, "messy")
    assert ended["state"] == "succeeded"
    files = {file["name"]: file for file in ended["attempts"][0]["artefacts"]}
    assert [name for name, file in files.items() if not file["dropped"]] == ["a", "c/d"]
    assert [name for name, file in files.items() if file["dropped"]] == ["b"]
    kept = hub.datadir.dir / "jobs" / ended["id"] / "1"
    assert sorted(str(p.relative_to(kept)) for p in kept.rglob("*") if p.is_file()) == ["a", "c/d"]
    warning = "agentlip: artefacts not kept: b; limits: 10 bytes (artefact_bytes_max), 100 files\n"
    assert ended["attempts"][0]["tail"] == warning
    assert "b: 100 bytes, not kept" in agentlip("jobs", "show", ended["id"], cwd=hub.workspace).out


def test_artefacts_above_their_number_are_named(hub):
    ended = run(hub, "many")
    files = ended["attempts"][0]["artefacts"]
    assert [file["dropped"] for file in files] == [False] * 100 + [True] * 5
    assert files[-1]["name"] == "205"


def test_run_is_cancelled_and_another_is_refused_meanwhile(hub):
    run_id = request(hub, "sleepy")
    until_output(hub, run_id, "ready")
    assert show(hub, run_id)["attempts"][0]["tail"] == "ready\n"
    refused = hub.http.post("/api/v1/jobs/sleepy/runs", {})
    assert (refused.status, refused.body["code"]) == (409, "JOB_BUSY")
    assert refused.body["hint"].startswith(
        f"agentlip jobs history {refused.body['details']['job']}"
    )
    assert hub.http.post(f"/api/v1/jobs/runs/{run_id}/cancel", {}).status == 200
    assert show(hub, run_id, 30)["state"] == "cancelled"
    again = hub.http.post(f"/api/v1/jobs/runs/{run_id}/cancel", {})
    assert (again.status, again.body["hint"]) == (409, f"agentlip jobs show {run_id}")
    until(lambda: processes_of(run_id) == [], 10, "nothing is left")


def test_token_has_its_scopes_and_ends_with_the_run(hub):
    run_id = request(hub, "caller")
    assert until_output(hub, run_id, "***") == "***\n"
    token = (hub.datadir.dir / "jobs" / run_id / "1" / "token").read_text().strip()
    caller = hub.connect(token)
    assert caller.get("/api/v1/jobs/caller/history").status == 200
    assert caller.post("/api/v1/jobs/good/runs", {}).status == 403
    hub.http.post(f"/api/v1/jobs/runs/{run_id}/cancel", {})
    show(hub, run_id, 30)
    assert caller.get("/api/v1/jobs/caller/history").status == 401


def test_job_is_made_run_paused_and_removed_over_http(hub):
    path = "/api/v1/jobs/given"
    spec = {"command": ["sh", "-c", "echo one; sleep 0.1; echo two"], "cron": "0 6 * * 1"}
    refused = hub.http("PUT", path, {**spec, "cron": "x"})
    assert (refused.status, refused.body["code"]) == (400, "BAD_JOB_SPEC")
    assert hub.http("PUT", "/api/v1/jobs/good", spec).body["code"] == "JOB_IS_FILE"
    assert hub.http("PUT", path, spec).body["job"]["schedule"] == "0 6 * * 1"
    assert hub.http.post(f"{path}/pause", {}).status == 200
    run_id = request(hub, "given")
    assert show(hub, run_id)["state"] == "queued"
    hub.kill()
    hub.start()
    assert hub.http.post(f"{path}/resume", {}).status == 200
    stream = hub.connect().get(f"/api/v1/jobs/runs/{run_id}/events").raw.decode()
    assert stream.count("event: state") >= 1
    texts = [json.loads(line[6:])["text"] for line in stream.splitlines() if '"text"' in line]
    assert "".join(texts) == "one\ntwo\n"
    assert hub.http("DELETE", path).status == 200
    assert hub.http.get(path).status == 404


@pytest.mark.parametrize(("answer", "state"), [("yes", "succeeded"), ("no", "cancelled")])
def test_run_starts_only_if_a_person_agrees(hub, answer, state):
    run_id = request(hub, "asking")

    def asks():
        return hub.http.get("/api/v1/asks?state=waiting").body["asks"]

    (ask,) = until(asks, 30, "it asks")
    assert (ask["text"], ask["blocks"], ask["principal"]) == ("Go?", [run_id], "job:asking")
    answered = hub.http.post(f"/api/v1/asks/{ask['id']}/answer", {"answer": answer})
    assert answered.status == 200
    assert show(hub, run_id, 30)["state"] == state


def test_message_starts_a_job(hub):
    _, topic = hub.channel_with_topic("ops")
    runs = until(lambda: hub.send(topic) and history(hub, "listening"), 30, "it has started")
    assert (runs[0]["cause"], runs[0]["detail"].split()[:3]) == (
        "event", ["hub", "message.created", "ops"],
    )  # fmt: skip


def test_outcome_is_posted_to_a_topic(hub):
    topic = hub.topic(hub.channel("news"), "jobs")
    run_id = run(hub, "posting")["id"]

    def messages():
        return hub.http.get(f"/api/v1/messages?topic_id={topic}").body["messages"]

    (message,) = until(messages, 30, "it is posted")
    assert message["content_raw"] == f"job posting failed: exit code 1 ({run_id})"


def history(hub, job):
    return hub.http.get(f"/api/v1/jobs/{job}/history").body["runs"]


def test_job_commands_print_and_exit_as_documented(hub):
    def jobs(*arguments):
        return agentlip("--workspace", hub.workspace, "jobs", *arguments, cwd=hub.workspace)

    assert jobs("pause", "--all").out == "paused all jobs\n"
    assert "all jobs are paused" in jobs("list").err
    words = ["timeout", "20", *command("agentlip", "jobs", "run", "bad", "--wait")]
    with subprocess.Popen(
        words, cwd=hub.workspace, env=environment(), stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stderr.readline().endswith(" waits for agentlip jobs resume --all\n")
        assert jobs("resume", "--all").code == 0
    assert waiting.returncode == 7
    assert jobs("pause").code == 1

    made = jobs("run", "good", "--wait", "--json")
    run_id = made.json["id"]
    assert jobs("logs", "-f", run_id).out == "red ***\n"
    assert "a: 2 bytes" in jobs("show", run_id).out
    assert jobs("history", "good", "--json").json[0]["id"] == run_id
    assert jobs("cancel", run_id).code == 2
    assert len(jobs("next", "--json").json) == 5
    assert jobs("run", "hourly", "--dry-run").out.count(":00:00.000Z\n") == 5


def processes_of(run_id):
    return processes_with(f"AGENTLIP_RUN={run_id}")


def processes_with(variable):
    """The pids of all processes that have this in their environment."""
    mark, pids = variable.encode(), []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/environ", "rb") as file:
                    if mark in file.read():
                        pids.append(int(entry.name))
            except OSError:
                continue
    return pids


@pytest.mark.parametrize(
    ("job", "attempt_state", "run_state", "code"),
    [("tidy", "succeeded", "succeeded", 0), ("untidy", "lost", "queued", 3)],
)
def test_stop_gives_running_jobs_sigterm_and_stores_their_ends(
    hub, job, attempt_state, run_state, code
):
    run_id = request(hub, job)
    until_output(hub, run_id, "ready")
    assert hub.stop() == 0
    stopped_ms = time.time() * 1000
    sql = "SELECT state, exit_code, ended_at, tail FROM attempts WHERE run_id = ?"
    ((state, exit_code, ended_at, tail),) = read(hub.datadir.database("jobs"), sql, run_id)
    assert (state, exit_code, tail) == (attempt_state, code, "ready\nbye\n")
    assert datetime.fromisoformat(ended_at).timestamp() * 1000 <= stopped_ms
    ((run,),) = read(hub.datadir.database("jobs"), "SELECT state FROM runs WHERE id = ?", run_id)
    assert run == run_state
    hub.start()
    if run_state == "queued":
        assert hub.http.post(f"/api/v1/jobs/runs/{run_id}/cancel", {}).status == 200
    assert show(hub, run_id, 30)["ended_at"]


def test_job_that_ignores_sigterm_does_not_hold_up_the_stop_for_long(tmp_path):
    hub = ServedHub(tmp_path)
    hub.constants = {"appliance.jobs.handles.GRACE_SECONDS": 0.5}
    (tmp_path / "jobs").mkdir()
    text = 'command = ["sh", "-c", "trap \'\' TERM; echo ready; sleep 600 & wait; sleep 600"]'
    (tmp_path / "jobs" / "stubborn.toml").write_text(text)
    with hub.running():
        run_id = request(hub, "stubborn")
        until_output(hub, run_id, "ready")
    assert processes_of(run_id) == []


def runs_of(hub, job):
    return hub.http.get(f"/api/v1/jobs/{job}/history").body["runs"]


def test_outcome_and_question_of_a_job_do_not_start_it_again(hub):
    topic = hub.topic(hub.channel("echo"), "jobs")
    for count in (1, 2):
        hub.send(topic, "somebody's message")
        until(lambda count=count: len(runs_of(hub, "echoing")) >= count, 30, "a run")
        until(lambda: runs_of(hub, "echoing")[0]["ended_at"], 30, "it has ended")
        until(lambda count=count: len(posts(hub, topic, "echoing")) == count, 30, "its outcome")
    hub.send(topic, "the last one")
    until(lambda: len(runs_of(hub, "echoing")) >= 3, 30, "its run")
    assert [run["cause"] for run in runs_of(hub, "echoing")] == ["event"] * 3
    (post, *_) = posts(hub, topic, "echoing")
    assert post["principal"] == "job:echoing"


def posts(hub, topic, job):
    listed = hub.http.get(f"/api/v1/messages?topic_id={topic}&limit=200").body["messages"]
    return [row for row in listed if row["content_raw"].startswith(f"job {job} ")]


def test_job_may_ask_to_be_started_by_its_own_events(hub):
    topic = hub.topic(hub.channel("loop"), "jobs")
    hub.send(topic, "once")
    until(lambda: len(runs_of(hub, "looping")) >= 3, 60, "it goes on by itself")
    assert hub.http.post("/api/v1/jobs/looping/pause", {}).status == 200


def test_command_gets_the_event_that_started_it(hub):
    topic = hub.topic(hub.channel("seen"), "jobs")
    until(lambda: hub.send(topic) and runs_of(hub, "seeing"), 30, "a run")
    run = until(lambda: runs_of(hub, "seeing")[-1], 30, "the first run")
    until(lambda: runs_of(hub, "seeing")[-1]["ended_at"], 30, "its end")
    lines = hub.http.get(f"/api/v1/jobs/runs/{run['id']}/output").body["text"].splitlines()
    assert len(lines) == 2, lines
    events = [json.loads(line) for line in lines]
    number = events[0]["number"]
    name, *_ = hub.rows("SELECT name FROM events WHERE event_id = ?", number)[0]
    assert name == "message.created"
    assert events == [
        {
            "source": "hub", "name": name, "where": "seen", "number": number, "principal": "server",
        }
    ] * 2  # fmt: skip
    assert run["detail"] == f"hub message.created seen {number}"


def test_list_has_the_loops_that_have_run(tmp_path):
    hub = ServedHub(tmp_path, settings="[backup]\nevery_seconds = 86400\n")
    hub.constants = {"appliance.monitoring.loops.Checkup.interval_seconds": 0.1}
    with hub.running():

        def built_in():
            listed = hub.http.get("/api/v1/jobs").body["jobs"]
            return {job["name"]: job for job in listed if job["source"] == "built-in"}

        until(lambda: "doctor_checkup" in built_in(), 30, "a round has ended")
        checkup, backups = built_in()["doctor_checkup"], built_in()["backup_scheduler"]
        assert (checkup["last_state"], checkup["failures"]) == ("succeeded", 0)
        assert backups["next_at"] is None, "there is nothing to back up yet"
        hub.channel("general")
        assert agentlip("backup", "create", cwd=tmp_path).code == 0
        until(lambda: built_in()["backup_scheduler"]["next_at"], 30, "the backup is seen")
        ahead = datetime.fromisoformat(built_in()["backup_scheduler"]["next_at"])
        assert ahead - datetime.now(UTC) > timedelta(hours=23), "not the next look at the clock"


def test_validate_refuses_names_of_jobs_channels_and_meshes_that_are_missing(tmp_path):
    hub = ServedHub(tmp_path)
    file = hub.workspace / "jobs" / "naming.toml"
    file.parent.mkdir()

    def validate(text):
        file.write_text('command = ["true"]\n' + text)
        done = agentlip("jobs", "validate", cwd=hub.workspace)
        return done.code, done.out

    after = 'after = ["given"]\n'
    listening = '[[on]]\nsource = "hub"\nevent = "message.created"\nwhere = "ops"\n'
    with hub.running():
        code, printed = validate(after)
        assert (code, "after: 'given' is not one of naming" in printed) == (1, True)
        assert hub.http("PUT", "/api/v1/jobs/given", {"command": ["true"]}).status == 200
        assert validate(after)[0] == 0
        assert validate(listening)[0] == 0, "there is no channel yet"
        hub.channel("general")
        code, printed = validate(listening)
        expected = "line 5: on[0].where: 'ops' is not one of general"
        assert (code, expected in printed) == (1, True), printed
        hub.channel("ops")
        assert validate(listening)[0] == 0
        hub.made(hub.http.post("/broker/v1/meshes", {"slug": "lab"}))
        for mesh, code in (("lab", 0), ("default", 0), ("lba", 1)):
            assert (
                validate(f'[[on]]\nsource = "outbox"\nevent = "*"\nwhere = "{mesh}"\n')[0] == code
            )
    assert validate(after + listening)[0] == 0, "it needs no appliance"
