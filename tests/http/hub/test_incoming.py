"""Incoming webhooks of a served appliance: by sockets, proxies, commands, kills, jobs, streams."""

import itertools
import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.commands import agentlip
from tests.support.servedhub import ServedHub, serve
from tests.support.until import until
from tests.unit.hub.incoming import samples
from tests.unit.hub.incoming.samples import PAYLOADS, SECRET, SENDERS, payload

pytestmark = pytest.mark.slow
PATH = "/api/v1/incoming"
PUBLIC = "hub.example.org"
SETTINGS = f'[http]\nallowed_hosts = ["{PUBLIC}"]\nunix_socket = true\n'
JOB = """description = "after each build"
command = ["sh", "-c", "echo built"]

[[on]]
source = "hub"
event = "message.created"
where = "ops"
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub"), "--no-limits", settings=SETTINGS) as hub:
        hub.channel_with_topic("ops")
        yield hub


def add(hub, name, template, **more):
    target = {} if "stream" in more else {"topic_id": "ops/t"}
    body = {"name": name, "template": template, "secret": SECRET, **target, **more}
    return ServedHub.made(hub.http.post(PATH, body))


def deliver(hub, name, body, headers, **more):
    """A request as the sender's, which has no token."""
    client = hub.connect(token=None)
    answer = client.post(f"{PATH}/{name}", raw=body, headers={**headers, **more})
    client.close()
    return answer


def messages(hub, sender):
    return hub.rows("SELECT id FROM messages WHERE sender = ?", sender)


@pytest.mark.parametrize("number", range(len(SENDERS)))
def test_each_sender_is_accepted_once(hub, number):
    template, name, sign, is_known = list(SENDERS.values())[number]
    header = {"signature_header": "X-Ci-Signature"} if sign is samples.named_header else {}
    endpoint = f"sender-{number}"
    add(hub, endpoint, template, **header)
    body = payload(name)
    headers = sign(body, int(time.time()))
    first = deliver(hub, endpoint, body, headers)
    assert first.status == 201, first
    again = deliver(hub, endpoint, body, headers)
    assert again.status == (200 if is_known else 201)
    assert deliver(hub, endpoint, body, {}).status == 401
    assert len(messages(hub, endpoint)) == (1 if is_known else 2)
    topics = hub.rows("SELECT value_json FROM topic_attachments WHERE key = ?", endpoint)
    assert json.loads(topics[0][0])["template"] == template


def test_many_repetitions_at_once_make_one_message(hub):
    add(hub, "race", "github")
    body = payload("github_push")
    headers = samples.github(body, 0)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: deliver(hub, "race", body, headers), range(24)))
    assert sorted(answer.status for answer in answers) == [200] * 23 + [201]
    assert len({answer.body["message_id"] for answer in answers}) == 1
    assert len(messages(hub, "race")) == 1


FORWARDED = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}


@pytest.mark.parametrize("host", [PUBLIC, "localhost"])
def test_delivery_through_a_proxy_is_accepted(hub, host):
    name = f"proxy-{host[:3]}"
    add(hub, name, "alertmanager")
    body = payload("alertmanager")
    headers = {**samples.bearer(body, 0), **FORWARDED, "Host": host}
    assert deliver(hub, name, body, headers).status == 201
    assert deliver(hub, name, body, {**headers, "Host": "evil.example.org"}).status == 421
    refused = deliver(hub, name, body, {**headers, "Authorization": f"Bearer {hub.token}"})
    assert (refused.status, refused.body["code"]) == (401, "DELIVERY_REFUSED")


def test_chunked_body_and_http_1_0_are_accepted(hub):
    add(hub, "raw", "gitlab")
    body = payload("gitlab_push")

    def status(head, sent):
        with socket.create_connection(("127.0.0.1", hub.port), 20) as sock:
            lines = [*head, f"Host: {PUBLIC}", "Content-Type: application/json",
                     f"X-Gitlab-Token: {SECRET}", "Connection: close", "", ""]  # fmt: skip
            sock.sendall("\r\n".join(lines).encode() + sent)
            return int(sock.makefile("rb").readline().split()[1])

    line = f"POST {PATH}/raw HTTP/"
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    assert status([line + "1.1", "Transfer-Encoding: chunked"], chunked) == 201
    assert status([line + "1.0", f"Content-Length: {len(body)}"], body) == 201


def test_owner_on_the_socket_file_needs_the_credential_too(hub):
    add(hub, "owner", "json")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(hub.datadir.dir / "sock"))
        head = f"POST {PATH}/owner HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
        sock.sendall(f"{head}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        assert sock.recv(12) == b"HTTP/1.1 401"


def test_metrics_count_deliveries_by_outcome(hub):
    add(hub, "counted", "json")
    body = payload("json")
    headers = {**samples.bearer(body, 0), "Idempotency-Key": "1"}
    before = metrics(hub)
    deliver(hub, "counted", body, headers)
    deliver(hub, "counted", body, headers)
    deliver(hub, "counted", body, {})
    deliver(hub, "counted", b"[]", headers)
    counted = ['accepted_total{template="json"}', 'duplicates_total{template="json"}']
    counted += ['refused_total{reason="credential"}', 'refused_total{reason="payload"}']

    def all_are_counted():
        after = metrics(hub)
        return [after.get(name, 0) - before.get(name, 0) for name in counted] == [1] * 4

    until(all_are_counted, 10, "the metrics, which are read at most once a second, are new")


def metrics(hub):
    lines = hub.http.get("/metrics").raw.decode().splitlines()
    values = [line.rsplit(" ", 1) for line in lines if line.startswith("agentlip_incoming_")]
    return {name.removeprefix("agentlip_incoming_"): float(value) for name, value in values}


def test_deliveries_are_not_in_the_audit_log_and_endpoints_are(hub):
    add(hub, "audited", "json")
    body = payload("json")
    deliver(hub, "audited", body, samples.bearer(body, 0))
    deliver(hub, "audited", body, {})
    listed = agentlip("audit", "list", "--json", cwd=hub.workspace)
    rows = [row for row in listed.json if "incoming" in json.dumps(row)]
    assert len(rows) >= 1
    assert not [row for row in rows if "/{name}" in json.dumps(row)]


# -- restarts --------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["topic", "stream"])
def test_kill_between_commit_and_answer_loses_and_doubles_nothing(tmp_path, target):
    """The sender never reads an answer, and repeats each delivery after the restart."""
    hub = ServedHub(tmp_path, "--no-limits")
    bodies = [json.dumps({"ref": f"refs/heads/b{n}", "commits": []}).encode() for n in range(20)]
    streams = {"stream": "builds"} if target == "stream" else {}
    with hub.running(ending=signal.SIGKILL):
        hub.channel_with_topic("ops")
        add(hub, "ci", "github", **streams)
        sockets = [unread_request(hub, body, n) for n, body in enumerate(bodies)]
        until(lambda: stored(hub), 20, "one is committed")
        hub.kill()
        for sock in sockets:
            sock.close()
    with hub.running(ending=signal.SIGKILL):
        before = dict(stored(hub))  # the writer's process may end after the one that was killed
        assert before
        for number, body in enumerate(bodies):
            answer = deliver(hub, "ci", body, samples.github(body, 0, delivery=f"d{number}"))
            known = before.get(f"id:d{number}")
            assert answer.status == (201 if known is None else 200), answer
            assert known is None or json.loads(known) == answer.body
        assert len(messages(hub, "ci")) == (0 if streams else len(bodies))
        assert len(stored(hub)) == 2 * len(bodies)


def unread_request(hub, body, number):
    headers = samples.github(body, 0, delivery=f"d{number}") | {
        "Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body)),
    }  # fmt: skip
    sock = socket.create_connection(("127.0.0.1", hub.port), 20)
    lines = [f"POST {PATH}/ci HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items()), "", ""]
    sock.sendall("\r\n".join(lines).encode() + body)
    return sock


def stored(hub):
    return hub.rows("SELECT key, reply FROM x_idempotency WHERE route = 'incoming/ci'")


# -- envelopes and jobs ------------------------------------------------------------------------


def test_delivery_is_received_as_an_envelope_once(hub):
    add(hub, "queue", "grafana", stream="alerts")
    body = payload("grafana")
    for status in (201, 200):
        headers = samples.grafana_with_time(body, int(time.time()))
        assert deliver(hub, "queue", body, headers).status == status
    received = hub.http.post("/v1/receive", {"stream": "alerts", "max": 10})
    (envelope,) = [each["deliver"] for each in received.body["deliveries"]]
    assert envelope["type"] == "incoming.grafana"
    assert envelope["payload"]["body"]["groupKey"] == "{}:{}"


def test_delivery_starts_a_job(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "after-build.toml").write_text(JOB)
    with serve(tmp_path) as hub:
        hub.channel_with_topic("ops")
        add(hub, "ci", "github")
        body = payload("github_workflow_run")
        deliveries = itertools.count()

        def has_run():
            """A new job begins with the events that follow, so each round has another one."""
            ref = json.dumps(json.loads(body) | {"round": next(deliveries)}).encode()
            headers = samples.github(ref, 0, "workflow_run", f"d{len(ref)}-{time.time()}")
            assert deliver(hub, "ci", ref, headers).status == 201
            rows = agentlip("jobs", "history", "after-build", "--json", cwd=tmp_path).json
            return [row for row in rows if row["state"] == "succeeded"]

        until(has_run, 30, "the job has run", pause_seconds=0.5)


# -- commands ----------------------------------------------------------------------------------


def test_commands_add_show_try_and_remove(hub):
    def run(*arguments, code=0):
        done = agentlip("incoming", *arguments, "--json", cwd=hub.workspace)
        assert done.code == code, done
        return done.json if code == 0 else json.loads(done.err)

    secret = hub.workspace / "secret"
    secret.write_text(SECRET + "\n")
    made = run("add", "cmd", "--template", "github", "--topic-id", "ops/t", "--to", "ana",
               "--secret-file", str(secret))  # fmt: skip
    assert made["secret"] == SECRET
    assert run("add", "cmd", "--template", "json", "--stream", "s", code=2)["code"] == (
        "INCOMING_EXISTS"
    )
    assert run("show", "cmd") == made["endpoint"]
    assert made["endpoint"] in run("list")
    file = str(PAYLOADS / "github_push.json")
    missing = run("test", "cmd", file, code=1)
    assert missing["hint"] == "--header 'X-GitHub-Event: push'"
    tried = run("test", "cmd", file, "--header", "X-GitHub-Event: push")
    assert (tried["accepted"], messages(hub, "cmd")) == (None, [])
    sent = run("test", "cmd", file, "--header", "X-GitHub-Event: push", "--send")
    assert messages(hub, "cmd") == [(sent["accepted"]["message_id"],)]
    text = agentlip("incoming", "test", "cmd", file, "--header", "X-GitHub-Event: ping",
                    cwd=hub.workspace)  # fmt: skip
    assert text.out == "ping: no message\n"
    bad = agentlip("incoming", "test", "cmd", file, "--header", "nonsense", cwd=hub.workspace)
    assert (bad.code, "not a header" in bad.err) == (1, True)
    assert "cmd: github to topic_" in agentlip("incoming", "show", "cmd", cwd=hub.workspace).out
    assert "NAME" in agentlip("incoming", "list", cwd=hub.workspace).out
    assert run("remove", "cmd") == {"name": "cmd", "deleted": True}
    assert run("show", "cmd", code=1)["code"] == "NOT_FOUND"
    assert agentlip("incoming", "test", "cmd", "nowhere.json", cwd=hub.workspace).code == 1


def test_secret_is_shown_only_when_it_is_new(hub):
    made = agentlip("incoming", "add", "shown", "--template", "json", "--topic-id", "ops/t",
                    cwd=hub.workspace)  # fmt: skip
    sentence, secret = made.out.splitlines()
    assert sentence == f"added shown; the sender calls {PATH}/shown"
    assert secret.startswith("whsec_")
    shown = agentlip("incoming", "show", "shown", cwd=hub.workspace)
    assert secret not in shown.out + hub.log_text
