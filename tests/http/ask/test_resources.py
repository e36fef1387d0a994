"""Asks of a served appliance: by HTTP and the command line, through kills, and on a full disk."""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.commands import agentlip
from tests.support.servedhub import ServedHub, serve
from tests.support.smalldisk import small_disk
from tests.support.until import until

pytestmark = pytest.mark.slow
PATH = "/api/v1/asks"
QUESTION = {"text": "Deploy?", "sender": "ci", "choices": ["yes", "no"]}


def ask(hub, **more):
    return ServedHub.made(hub.http.post(PATH, QUESTION | more))["ask"]


def token_of(hub, name, *scopes):
    made = hub.http.post("/api/v1/tokens", {"name": name, "scopes": scopes})
    return hub.connect(hub.made(made)["secret"])


def replies(hub, ask_id):
    return hub.rows("SELECT sender FROM messages WHERE content_raw LIKE ?", f"%({'%'}; {ask_id})")


def test_two_answers_at_once_have_one_winner(hub):
    clients = [token_of(hub, f"person-{n}", "ask:answer", "hub:read") for n in range(4)]
    asked = ask(hub)

    def answer(client):
        return client.post(f"{PATH}/{asked['id']}/answer", {"answer": "yes"})

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(answer, clients))
    assert sorted(each.status for each in answers) == [200, 409, 409, 409]
    (winner,) = [each.body["ask"]["answered_by"] for each in answers if each.status == 200]
    losers = [each.body for each in answers if each.status == 409]
    assert {each["details"]["answered_by"] for each in losers} == {winner}
    assert {each["code"] for each in losers} == {"ASK_SETTLED"}
    assert replies(hub, asked["id"]) == [(winner,)]


def test_commands_ask_wait_and_answer(hub):
    def run(*arguments, code=0):
        done = agentlip("ask", *arguments, "--json", cwd=hub.workspace)
        assert done.code == code, done
        return done.json

    create = ("create", "Deploy?", "--sender", "ci", "--choice", "yes", "--choice", "no")
    key = ("--idempotency-key", "build-7")
    asked = run(*create, *key, "--blocks", "deploy-7")
    assert run("show", asked["id"], "--wait", "0.1", code=3)["state"] == "waiting"
    assert asked["id"] in [row["id"] for row in run("list", "--state", "waiting", "--mine")]
    assert run("answer", asked["id"], "yes", "--sender", "eve")["answered_by"] == "eve"
    again = run(*create, *key, "--blocks", "deploy-7", "--wait", "5")
    assert (again["id"], again["answer"]) == (asked["id"], "yes")
    other = run(*create)
    run("cancel", other["id"])
    assert run("show", other["id"], "--wait", "1", code=2)["state"] == "cancelled"
    late = agentlip("ask", "answer", other["id"], "no", cwd=hub.workspace)
    assert (late.code, "already cancelled" in late.err) == (2, True)
    shown = agentlip("ask", "show", asked["id"], cwd=hub.workspace).out
    assert "answered: yes (eve" in shown
    expired = run(*create, "--deadline", "1", "--wait", "20", code=2)
    assert expired["state"] == "expired"


def test_kill_between_answer_and_reply_loses_nothing(tmp_path):
    """The client that was cut off repeats its request with the same key."""
    hub = ServedHub(tmp_path, "--no-limits")
    with hub.running(ending=signal.SIGKILL):
        late = ask(hub, deadline_seconds=1, default="no")
        asked = [ask(hub)["id"] for _ in range(20)]
        client = hub.connect()
        with ThreadPoolExecutor(1) as pool:

            def answer_all():
                for ask_id in asked:
                    headers = {"Idempotency-Key": ask_id}
                    client.post(f"{PATH}/{ask_id}/answer", {"answer": "yes"}, headers=headers)

            answering = pool.submit(answer_all)
            until(lambda: hub.rows("SELECT 1 FROM x_asks WHERE state = 'answered'"), 20, "one")
            hub.kill()
            answering.exception(20)
        states = dict(hub.rows("SELECT id, state FROM x_asks"))
    with hub.running(ending=signal.SIGKILL):
        for ask_id in asked:
            answer = hub.http.post(
                f"{PATH}/{ask_id}/answer", {"answer": "yes"}, headers={"Idempotency-Key": ask_id}
            )
            assert answer.status == 200, (answer, states[ask_id])
            assert len(replies(hub, ask_id)) == 1
        shown = hub.http.get(f"{PATH}/{late['id']}?wait=20").body["ask"]
        assert (shown["state"], shown["answer"]) == ("defaulted", "no")


@pytest.mark.root
def test_full_disk_keeps_asks_waiting(tmp_path):
    with small_disk(tmp_path, "tmpfs", 48) as disk:
        (disk.root / "w").mkdir()
        with serve(disk.root / "w", settings="[store]\nfree_bytes_min = 0\n") as hub:
            asked = ask(hub, deadline_seconds=2)
            disk.fill()
            refused = until(lambda: refusal(hub, asked["id"]), 30, "a refusal")
            assert refused.body["code"] == "STORAGE_FULL"
            assert hub.http.get(f"{PATH}/{asked['id']}").body["ask"]["state"] == "waiting"
            disk.clear()
            until(lambda: state(hub, asked["id"]) == "expired", 30, "the deadline")
            assert len(replies(hub, asked["id"])) == 1


def refusal(hub, ask_id):
    answer = hub.http.post(f"{PATH}/{ask_id}/cancel", {"sender": "x" * 200})
    return answer if answer.status == 503 else None


def state(hub, ask_id):
    return hub.http.get(f"{PATH}/{ask_id}").body["ask"]["state"]
