"""Reviews of the worker bus become asks: the answer decides the review, and the other way round."""

import json

import pytest

from tests.support.commands import agentlip, succeed
from tests.support.repository import IDENTITY, commit, new_repository
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow
PATH = "/api/v1/asks"


def worker(folder, *words):
    done = succeed("worker", *words, "--json", cwd=folder)
    return json.loads(done.out.splitlines()[-1])


def begin(repository, task):
    worker(repository, "spawn", task)
    folder = repository / "worktrees" / task
    worker(folder, "start")
    return folder


def finish(folder, name):
    commit(folder, {name: "1"})
    worker(folder, "done")


def asks(hub, task):
    rows = hub.http.get(f"{PATH}?asker={task}").body["asks"]
    return [row for row in rows if row["blocks"] == [task]]


def waiting(hub, task):
    return [row["id"] for row in asks(hub, task) if row["state"] == "waiting"]


def state(repository, task):
    return worker(repository, "show", task)["task"]["state"]


def test_review_is_decided_by_the_answer_or_its_ask_is_cancelled(tmp_path, monkeypatch):
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    repository = new_repository(tmp_path / "repository")
    constants = {"appliance.hub.ask.reviews.POLL_SECONDS": 0.3}
    settings = "[bus]\nask_reviews = true\n"
    with serve(repository, settings=settings, constants=constants) as hub:
        folder = begin(repository, "t")
        finish(folder, "a.txt")
        (first,) = until(lambda: waiting(hub, "t"), 30, "an ask")
        answer = {"answer": "request changes", "sender": "ada"}
        hub.http.post(f"{PATH}/{first}/answer", answer)
        until(lambda: state(repository, "t") == "WORKING", 30, "requested changes")
        assert "ada" in agentlip("worker", "logs", "t", cwd=repository).out
        finish(folder, "b.txt")
        (second,) = until(lambda: waiting(hub, "t"), 30, "another ask")
        hub.http.post(f"{PATH}/{second}/answer", {"answer": "approve"})
        until(lambda: state(repository, "t") == "APPROVED", 30, "an approval")
        finish(begin(repository, "u"), "c.txt")
        until(lambda: waiting(hub, "u"), 30, "an ask")
        worker(repository, "approve", "u")
        until(lambda: not waiting(hub, "u"), 30, "its end")
        assert [row["state"] for row in asks(hub, "u")] == ["cancelled"]
        assert [row["state"] for row in asks(hub, "t")] == ["answered", "answered"]
        assert '"level":"error"' not in hub.log_text
