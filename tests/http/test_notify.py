"""Messages to the operator from a served appliance: by mail, webhook and topic."""

import json
import re
import threading
from contextlib import contextmanager

import pytest

from tests.support.chat_services import ChatService
from tests.support.commands import agentlip
from tests.support.http_server import http_server
from tests.support.mailserver import mail_server
from tests.support.servedhub import ServedHub
from tests.support.smalldisk import small_disk
from tests.support.until import until
from tests.support.webhook_receiver import webhook_receiver

pytestmark = pytest.mark.slow
SETTINGS = """
[notify]
to = ["mailto:ops@example.com", "{url}", "topic:ops/alerts"]
[mail]
host = "localhost"
port = {port}
security = "none"
sender = "agentlip@example.com"
"""
QUICK = {
    "appliance.operations.notify.NotifyLoop.interval_seconds": 0.2,
    "appliance.monitoring.loops.DoctorRuns.shortest_seconds": 0.2,
}
FAILING_JOB = 'command = ["false"]\n'
SECONDS = 60


class Receivers:
    def __init__(self, mail, webhook):
        self.mail, self.webhook = mail, webhook
        mail.reset()

    def posts(self):
        return [json.loads(request.body) for request in self.webhook.got]

    def text(self):
        return "\n".join(post["text"] for post in self.posts())


@pytest.fixture
def receivers(tmp_path):
    with mail_server(tmp_path / "mail") as mail, webhook_receiver() as webhook:
        yield Receivers(mail, webhook)


@pytest.fixture
def hub(tmp_path, receivers):
    settings = SETTINGS.format(url=receivers.webhook.url, port=receivers.mail.port)
    made = ServedHub(tmp_path / "hub", settings=settings)
    made.constants = dict(QUICK)
    made.datadir.workspace.joinpath("jobs").mkdir()
    made.datadir.workspace.joinpath("jobs", "nightly.toml").write_text(FAILING_JOB)
    return made


def make_topic(hub):
    hub.topic(hub.channel("ops"), "alerts")


def test_a_failed_job_reaches_all_destinations_once(hub, receivers):
    with hub.running():
        make_topic(hub)
        hub.made(hub.http.post("/api/v1/jobs/nightly/runs", {}))
        until(lambda: "job nightly" in receivers.text(), SECONDS, "the webhook")
        until(lambda: receivers.mail.mails, SECONDS, "the mail")
        mail = receivers.mail.mails[0]
        assert mail.recipients == ["ops@example.com"]
        assert "job nightly: its latest run" in mail.text
        assert "jobs.outcomes" in (hub.datadir.dir / "notify.json").read_text()
        assert receivers.text().count("job nightly") == 1


@pytest.mark.root
def test_full_disk_is_one_message(tmp_path, receivers):
    with small_disk(tmp_path, "tmpfs", 300) as disk:
        settings = f'[notify]\nto = ["{receivers.webhook.url}"]\n'
        hub = ServedHub(disk.root / "hub", settings=settings)
        hub.constants = QUICK | {
            "appliance.monitoring.loops.Checkup.interval_seconds": 0.2,
            "appliance.monitoring.loops.DoctorRuns.interval_seconds": 2.0,
            "appliance.operations.notify.INTERVAL_MS": 0,
            "appliance.operations.problems.SOLVED_MS": 5000,  # a check may miss one round
        }
        with hub.running():
            topic = hub.channel_with_topic("c")[1]
            disk.fill()
            command = {"topic_id": topic, "sender": "tester", "content_raw": "x"}
            until(lambda: hub.http.post("/api/v1/messages", command).status == 503, SECONDS)
            until(lambda: "disk is full" in receivers.text(), SECONDS, "the message")
            ended = doctor_runs(hub)
            until(lambda: doctor_runs(hub) > ended + 2, SECONDS, "checks of the full disk")
            text, sent = receivers.text(), len(receivers.posts())
            assert text.count("new: ") == sent == len(re.findall(r"new: \w+: disk: ", text)), text
            assert text.count("the disk is full") == 1, text  # a check may have seen it half full
            disk.clear()
            until(lambda: "solved: " in receivers.text(), SECONDS, "the end")
            assert len(receivers.posts()) == sent + 1, receivers.text()


def doctor_runs(hub):
    """When all cheap checks ran last, in seconds."""
    text = hub.http.get("/metrics").raw.decode()
    return float(re.search(r"^agentlip_doctor_last_run_timestamp_seconds (\S+)", text, re.M)[1])


def test_a_question_that_waits_is_sent_with_the_command_that_answers(hub, receivers):
    with hub.running():
        make_topic(hub)
        asked = hub.made(hub.http.post("/api/v1/asks", {"text": "Deploy?", "sender": "ci"}))["ask"]
        until(lambda: "ci asks: Deploy?" in receivers.text(), SECONDS, "the webhook")
        assert f"agentlip ask answer {asked['id']} ANSWER" in receivers.text()
        messages = hub.rows("SELECT sender, content_raw FROM messages WHERE sender = 'notify'")
        assert len(messages) == 1
        assert "ci asks: Deploy?" in messages[0][1]
        sent = len(receivers.posts())
    with hub.running():
        hub.http.post("/api/v1/notify/test", {})
        until(lambda: len(receivers.posts()) > sent, SECONDS, "the test")
        assert [post["text"] for post in receivers.posts()[sent:]] == ["This is a test."]


def test_the_command_sends_a_test_through_the_outbox_and_without_it(hub, receivers):
    with hub.running():
        make_topic(hub)
        for flags, via in (((), "outbox"), (("--direct",), "direct")):
            done = agentlip("notify", "test", *flags, "--json", cwd=hub.workspace)
            assert [row["via"] for row in done.json] == [via, via, "hub"]
            assert done.code == 0
        until(lambda: len(receivers.mail.mails) == 2, SECONDS, "the mails")
        until(lambda: len(receivers.posts()) == 2, SECONDS, "the webhooks")
        assert [row["problem"] for row in done.json] == [None] * 3
        receivers.mail.kill()
        done = agentlip("notify", "test", "--direct", cwd=hub.workspace)
        assert done.code == 1
        assert "the mail server refused the connection" in done.out


@pytest.fixture
def refusing(tmp_path):
    """A hub whose only destination refuses the format that it is set to."""
    service = ChatService("googlechat")
    with http_server(service.reply) as server:
        url = f"http://127.0.0.1:{server.port}{service.path}"
        hub = ServedHub(tmp_path / "refusing", settings=NOTIFY.format(to=f"json+{url}"))
        hub.service, hub.destination = service, url
        yield hub


NOTIFY = '[notify]\nto = ["{to}"]\n'


def test_test_waits_for_the_first_attempt_and_shows_the_refusal(refusing):
    hub = refusing
    with hub.running():
        done = agentlip("notify", "test", "--json", cwd=hub.workspace)
        assert done.code == 1
        (result,) = done.json
        assert result["via"] == "outbox"
        assert result["problem"].startswith("the receiver responded with 400: ")
        assert "Unknown name" in result["problem"]
        assert refusals(hub) == [f"messages to the operator do not arrive: {result['problem']}"]
    with hub.running():
        assert refusals(hub), "the destination is the same"
    hub.datadir.settings_file.write_text(NOTIFY.format(to=f"googlechat+{hub.destination}"))
    with hub.running():
        assert agentlip("notify", "test", "--json", cwd=hub.workspace).code == 0
        assert "This is a test." in hub.service.shown[-1]
        assert refusals(hub) == [], "the first test was for the former destination"
        listed = agentlip("outbox", "list", "--json", cwd=hub.workspace).json
        assert sorted(send["status"] for send in listed) == ["aborted", "done"]
        assert "a message for a former destination of notify.to is dropped" in hub.log_text


def refusals(hub):
    report = agentlip("doctor", "--run", "outbox.refused", "--json", cwd=hub.workspace).json
    return [row["sentence"] for check in report["checks"] for row in check["findings"]]


def test_test_ends_if_the_destination_does_not_respond(refusing):
    refusing.constants = {"appliance.operations.notify.ATTEMPT_SECONDS": 1.0}
    responds = threading.Event()
    refusing.service.reply_after = responds
    with refusing.running():
        done = agentlip("notify", "test", "--json", cwd=refusing.workspace)
        assert (done.code, done.json[0]["via"]) == (1, "outbox")
        assert "agentlip outbox list" in done.json[0]["problem"]
        responds.set()


JOBS = {"good": 'command = ["true"]\n', "bad": FAILING_JOB}


@contextmanager
def serve_pings(folder, path, settings="", status=200, body=b"OK"):
    """A hub with jobs that end well and badly, and the server that it pings."""
    with http_server(lambda _request: (status, {}, body)) as server:
        ping = f'[notify]\nping = "http://127.0.0.1:{server.port}{path}"\n'
        hub = ServedHub(folder / "hub", settings=ping + settings)
        hub.constants = {
            "appliance.operations.notify.PingLoop.interval_seconds": 0.1,
            "appliance.backup.loops.BackupScheduler.interval_seconds": 0.2,
        }
        (hub.datadir.workspace / "jobs").mkdir()
        for name, text in JOBS.items():
            (hub.datadir.workspace / "jobs" / f"{name}.toml").write_text(text)
        with hub.running():
            yield hub, server


def test_ping_follows_backups_and_jobs_that_succeed_and_no_others(tmp_path):
    with serve_pings(tmp_path, "/ping/abc?status=up") as (hub, server):
        hub.channel_with_topic("c")
        assert run_to_end(hub, "bad") == "failed"
        assert run_to_end(hub, "good") == "succeeded"
        until(lambda: server.requests, SECONDS, "the ping of the job")
        assert [request[:2] for request in server.requests] == [("GET", "/ping/abc?status=up")]
        assert hub.http.post("/api/v1/backups", {}).status < 300
        until(lambda: len(server.requests) == 2, SECONDS, "the ping of the backup")


def test_failed_job_and_backup_request_the_url_for_failures(tmp_path):
    path = "/ping/8f2c1c0e-4b5d-4c1e-9d53-0e6f3c2b7a11"
    blocked = tmp_path / "file"
    blocked.write_text("")
    settings = f'[backup]\ndirectory = "{blocked}/backups"\n'
    with serve_pings(tmp_path, path, settings) as (hub, server):
        hub.channel_with_topic("c")
        assert run_to_end(hub, "bad") == "failed"
        until(lambda: server.requests, SECONDS, "the ping of the job")
        hub.http.post("/api/v1/backups", {})
        until(lambda: len(server.requests) >= 2, SECONDS, "the ping of the backup")
    assert {request[:2] for request in server.requests} == {("GET", f"{path}/fail")}


def run_to_end(hub, job):
    run = hub.made(hub.http.post(f"/api/v1/jobs/{job}/runs", {}))["run"]
    path = f"/api/v1/jobs/runs/{run['id']}?wait=20"
    return until(lambda: ended(hub.http.get(path).body["run"]), SECONDS, "the end of the run")


def ended(run):
    return run["state"] if run["ended_at"] else None


def test_refused_ping_is_logged_and_not_repeated(tmp_path):
    refusal = {"status": 404, "body": b"no such check"}
    with serve_pings(tmp_path, "/secret", **refusal) as (hub, server):
        run_to_end(hub, "good")
        text = "the receiver responded with 404: no such check"
        until(lambda: text in hub.log_text, SECONDS, "the line in the log")
        assert "secret" not in hub.log_text
        run_to_end(hub, "good")
        until(lambda: len(server.requests) == 2, SECONDS, "the next ping")
