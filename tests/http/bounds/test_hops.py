"""Agents that answer each other in a served topic, until a person gets a question."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from appliance.hub.pausing import HOPS_MAX
from tests.http.bounds.test_pauses import post, refused, resume
from tests.support.servedhub import ServedHub
from tests.support.until import until

pytestmark = pytest.mark.slow
ASKS = "/api/v1/asks"


def answer_endlessly(client, name, other, topic_id):
    """Post an answer to each message from the other name; return the refusal that ends this."""
    after = 0
    while True:
        page = client.get(f"/api/v1/inbox?after={after}&wait=20").body
        for entry in page["entries"]:
            answer = post(client, topic_id, name, f"@{other} and what do you think?")
            if answer.status != 201:
                return answer
            client.post("/api/v1/inbox/acknowledge", {"ids": [entry["id"]]})
        after = page["next"]


def hops(hub, topic_id):
    rows = hub.rows("SELECT hops FROM x_hops WHERE topic_id = ?", topic_id)
    return rows[0][0] if rows else None


def question(hub, about):
    asks = hub.http.get(f"{ASKS}?state=waiting").body["asks"]
    return next((ask for ask in asks if about in ask["text"]), None)


def fill(clients, topic_id, names=("pat", "quinn")):
    """Let two agents answer each other until the topic is paused; return the last answer."""
    for number in range(HOPS_MAX + 2):
        turn = number % 2
        answer = post(clients[turn], topic_id, names[turn], str(number))
        if answer.status != 201:
            return answer
    raise AssertionError("nothing stopped them")


@pytest.fixture(scope="module")
def pair(hub):
    """Connections with the tokens of two agents."""
    made = []
    for name in ("pat", "quinn"):
        command = {"name": name, "scopes": ["hub:read", "hub:post"]}
        made.append(ServedHub.made(hub.http.post("/api/v1/tokens", command))["secret"])
    return [hub.connect(secret) for secret in made]


def test_scripts_that_answer_each_other_endlessly_are_stopped(hub, agent):
    _, topic_id = hub.channel_with_topic("talk")
    ada, bob = agent("ada"), agent("bob")
    assert post(bob, topic_id, "bob", "@ada hello").status == 201
    with ThreadPoolExecutor(2) as pool:
        for client in (ada, bob):
            client.get("/api/v1/inbox")
        assert post(ada, topic_id, "ada", "@bob hello").status == 201
        ends = [
            pool.submit(answer_endlessly, ada, "ada", "bob", topic_id),
            pool.submit(answer_endlessly, bob, "bob", "ada", topic_id),
        ]
        until(lambda: ends[0].done() or ends[1].done(), 60, "one of them is refused")
        ask = until(lambda: question(hub, "talk/t"), 20, "a person is asked")
        body = refused(next(end for end in ends if end.done()).result())
        assert (body["details"]["cause"], body["details"]["by"]) == ("hops", "appliance")
        assert ask["choices"] == ["continue", "keep paused"]
        for end in ends:  # wakes the one that waits
            if not end.done():
                post(hub.http, topic_id, "alice", "@ada @bob stop")
                refused(end.result(30))
    assert hops(hub, topic_id) is None


def test_answer_continue_lets_the_topic_go_on(hub, pair):
    _, topic_id = hub.channel_with_topic("go-on")
    refused(fill(pair, topic_id))
    ask = until(lambda: question(hub, "go-on/t"), 20, "a person is asked")
    assert hub.http.post(f"{ASKS}/{ask['id']}/answer", {"answer": "continue"}).status == 200
    until(lambda: post(pair[0], topic_id, "pat").status == 201, 20, "the topic goes on")
    assert hops(hub, topic_id) == 0
    refused(fill(pair, topic_id))


def test_answer_keep_paused_leaves_the_topic_to_the_operator(hub, pair):
    _, topic_id = hub.channel_with_topic("stay")
    refused(fill(pair, topic_id))
    ask = until(lambda: question(hub, "stay/t"), 20, "a person is asked")
    hub.http.post(f"{ASKS}/{ask['id']}/answer", {"answer": "keep paused"})
    refused(post(pair[0], topic_id, "pat"))
    resume(hub, topic_id=topic_id)
    assert post(pair[0], topic_id, "pat").status == 201


def test_resuming_the_topic_cancels_its_question(hub, pair):
    _, topic_id = hub.channel_with_topic("lifted")
    refused(fill(pair, topic_id))
    ask = until(lambda: question(hub, "lifted/t"), 20, "a person is asked")
    resume(hub, topic_id=topic_id)
    assert hub.http.get(f"{ASKS}/{ask['id']}").body["ask"]["state"] == "cancelled"


def test_persons_message_resets_hops_and_lone_agents_count_none(hub, pair):
    _, topic_id = hub.channel_with_topic("calm")
    for number in range(50):
        assert post(pair[0], topic_id, "pat", str(number)).status == 201
    assert hops(hub, topic_id) == 0
    for turn in (1, 0, 1):
        post(pair[turn], topic_id, ("pat", "quinn")[turn])
    assert hops(hub, topic_id) == 3
    post(hub.http, topic_id, "alice")
    assert hops(hub, topic_id) is None
    post(pair[1], topic_id, "quinn")
    assert hops(hub, topic_id) == 0


def test_shared_token_counts_hops_of_names_with_a_used_inbox(hub):
    _, topic_id = hub.channel_with_topic("shared")
    for name in ("s1", "s2"):
        hub.http.get(f"/api/v1/inbox?name={name}")
    for name in ("s1", "s2", "s1"):
        post(hub.http, topic_id, name)
    assert hops(hub, topic_id) == 2
