"""The inbox of a served appliance, with a broker that plays a script: routes, tokens, streams."""

import json
import queue
import signal
import subprocess
import threading
from types import SimpleNamespace

import pytest

from tests.support.commands import agentlip, command, environment
from tests.support.inbox import ALICE, push, scripted_broker, until_gone
from tests.support.plugins import alive
from tests.support.servedhub import ServedHub, serve
from tests.support.until import until

pytestmark = pytest.mark.slow

TOKENS = "/api/v1/tokens"
ABOUT = ("/v1/health", "/v1/version", "/v1/compat")


@pytest.fixture(scope="module")
def meshes():
    """Two brokers; what is put into `to[mesh]` is pushed there."""
    to = {"default": queue.Queue(), "lab": queue.Queue()}
    acked = []

    def script(connection):
        connection.handshake()
        mesh = connection.hello["mesh"]
        while (entry := to[mesh].get()) is not None:
            connection.push(entry)
            acked.extend(connection.acked())
        until_gone(connection)

    with scripted_broker(script) as first, scripted_broker(script) as second:
        try:
            yield SimpleNamespace(
                to=to, acked=acked, endpoints=[first.endpoint("default"), second.endpoint("lab")]
            )
        finally:
            for waiting in to.values():
                waiting.put(None)


HOOKED = """
[[hooks.commands]]
on = "on-topic-hooked"
run = ["python3", "-c", '''
import json, os, sys, urllib.error, urllib.request
event = json.load(sys.stdin)
request = urllib.request.Request(
    os.environ["AGENTLIP_URL"] + "/v1/hooks/act",
    json.dumps({"scope": "reply:event", "message": "seen"}).encode(),
    {"Content-Type": "application/json",
     "Authorization": "Bearer " + os.environ["AGENTLIP_HOOK_TOKEN"]})
try:
    urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    open("answer", "w").write(f"{error.code} {json.load(error)['code']}")
''']
scopes = ["reply:event"]
"""


def settings_of(meshes):
    brokers = "".join(
        f'[[inbox.brokers]]\nmesh = "{endpoint.mesh}"\nurl = "{endpoint.url}"\n'
        for endpoint in meshes.endpoints
    )
    return f'[hooks]\nenabled = "on"\n{HOOKED}\n{brokers}'


@pytest.fixture(scope="module")
def hub(tmp_path_factory, meshes):
    with serve(tmp_path_factory.mktemp("inbox"), settings=settings_of(meshes)) as hub:
        yield hub


class Receive:
    def __init__(self, hub, meshes):
        self.hub, self.meshes, self.number = hub, meshes, 100

    def __call__(self, **changed):
        """A message through the broker; returns once it is acked."""
        self.number += 1
        entry = push(self.number, **changed)
        self.meshes.to[entry.mesh].put(entry)
        until(lambda: entry.message_id in self.meshes.acked, what="the push is acked")
        return entry


@pytest.fixture(scope="module")
def receive(hub, meshes):
    return Receive(hub, meshes)


def issue(hub, name, *scopes):
    body = hub.made(hub.http.post(TOKENS, {"name": name, "scopes": list(scopes)}))
    return body["secret"]


# -- who may -------------------------------------------------------------------------------


def test_a_token_of_one_mesh_sees_nothing_of_another(hub, receive):
    receive(mesh="lab", body="a word of the lab")
    receive(body="a word for all")
    lab = hub.connect(issue(hub, "lab", "inbox:read@lab", "inbox:write@lab"))
    page = lab.get("/v1/inbox").body
    assert page["mesh"] == "lab"
    assert {message["mesh"] for message in page["messages"]} == {"lab"}
    for path in ("/v1/inbox", "/v1/events", "/v1/health", "/v1/topic/list", "/v1/hooks/runs"):
        assert lab.get(f"{path}?mesh=default").status == 403
    assert [entry["mesh"] for entry in lab.get("/v1/health").body["links"]] == ["lab"]
    assert lab.post("/v1/topic/subscribe", {"topic": "a", "mesh": "default"}).status == 403
    assert lab.get("/v1/identity").status == 403
    everything = lab.get("/v1/inbox?since=0").raw + lab.get("/v1/hooks/runs").raw
    assert b"a word for all" not in everything


# -- messages --------------------------------------------------------------------------------


def test_a_message_is_read_by_page_poll_and_command(hub, receive):
    receive(topic="earlier", destination_ref="earlier")
    cursor = hub.http.get("/v1/inbox").body["next"]
    answers = []

    def wait():
        answers.append(hub.connect().get(f"/v1/inbox?since={cursor}&topic=polled&wait=20").body)

    waiting = threading.Thread(target=wait)
    waiting.start()
    sent = receive(topic="polled", destination_ref="polled", body="héllo", meta={"n": 1})
    waiting.join(20)
    (message,) = answers[0]["messages"]
    assert (message["body"], message["meta"]) == ("héllo", {"n": 1})
    assert message["sender_pubkey"] == ALICE
    assert message["client_message_id"] == sent.client_message_id
    page = hub.http.get(f"/v1/inbox?since={cursor}&limit=1")
    assert page.body["messages"][0]["id"] == message["id"]
    oldest = hub.http.get("/v1/inbox?since=0&limit=1&own=false")
    link = f"</v1/inbox?since={oldest.body['next']}&limit=1&own=false>; rel=next"
    assert oldest.headers["link"] == link
    done = agentlip(
        "inbox", "list", "--since", cursor, "--topic", "polled", "--jsonl",
        cwd=hub.workspace,
    )  # fmt: skip
    assert json.loads(done.out)["body"] == "héllo"


# -- how it stands ---------------------------------------------------------------------------


QUIET = "[inbox]\npublic_health_check = true\n[roles]\noutbox = false\n"


def test_only_health_routes_may_be_public(tmp_path):
    with serve(tmp_path / "public", settings=QUIET) as hub:
        for path in ABOUT:
            assert hub.connect(None).get(path).status == 200
        assert hub.connect(None).get("/v1/inbox").status == 401
        health = hub.http.get("/v1/health").body
        assert health["links"] == []
        assert "send" not in health["ipc_features"], "the outbox is switched off"


def test_watch_says_once_that_it_waits_for_a_broker(tmp_path):
    words = ["timeout", "-s", "INT", "20", *command("agentlip", "inbox", "watch")]
    with (
        serve(tmp_path / "quiet", settings=QUIET) as hub,
        subprocess.Popen(
            words, cwd=hub.workspace, env=environment(), stderr=subprocess.PIPE, text=True
        ) as watching,
    ):
        assert watching.stderr.readline() == "waiting for a link to the mesh default: no broker\n"
        watching.send_signal(signal.SIGINT)


def test_a_hook_runs_beside_the_appliance_and_its_token_opens_one_path(hub, receive):
    receive(topic="hooked", destination_ref="hooked")
    answer = hub.workspace / "answer"
    until(answer.exists, what="the hook has run")
    until(lambda: answer.read_text() != "")
    # Nothing here sends; or what does knows no broker of this mesh to send to.
    assert answer.read_text() in ("503 OUTBOX_OFF", "400 MESH_UNKNOWN")
    until(lambda: hub.http.get("/v1/hooks/runs").body["runs"][0]["outcome"] == "ok")
    run = hub.http.get("/v1/hooks/runs").body["runs"][0]
    assert [(act["scope"], act["outcome"]) for act in run["acts"]] == [("reply:event", "failed")]
    done = agentlip("inbox", "runs", cwd=hub.workspace)
    assert "on-topic-hooked" in done.out


def test_nothing_of_a_running_hook_survives_the_appliance(tmp_path):
    script = "trap : TERM; echo $$ > pids; (setsid sh -c 'echo $$ >> pids; sleep 600' &); sleep 600"
    broker = '[[inbox.brokers]]\nmesh = "default"\nurl = "http://127.0.0.1:1"'
    hook = f'[[hooks.commands]]\non = "on-startup"\nrun = ["sh", "-c", "{script}; sleep 600"]'
    hub = ServedHub(tmp_path, settings=f'hooks.enabled = "on"\n{hook}\n{broker}')
    file = tmp_path / "pids"
    hub.start()
    until(lambda: file.exists() and file.read_text().count("\n") == 2)
    pids = file.read_text().split()
    assert all(map(alive, pids))
    hub.kill()
    until(lambda: not any(map(alive, pids)))


# -- the key, and a copy of it ---------------------------------------------------------------


def test_the_key_is_shown_without_its_secret(hub):
    identity = hub.http.get("/v1/identity")
    keypair = json.loads((hub.datadir.dir / "identity" / "keypair.json").read_text())
    assert identity.body["pubkey"] == keypair["ed25519_pubkey"]
    for secret in (keypair["ed25519_seed"], keypair["x25519_privkey"]):
        assert secret not in identity.raw.decode() + hub.log_text
    done = agentlip("identity", "show", "--json", cwd=hub.workspace)
    assert json.loads(done.out)["pubkey"] == keypair["ed25519_pubkey"]
    busy = agentlip("identity", "remint", "--yes", cwd=hub.workspace)
    assert (busy.code, "already running" in busy.err) == (2, True)
