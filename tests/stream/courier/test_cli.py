"""`agentlip courier subscribe` with a command that can't be started, and the skill `git.diff`."""

from tests.support.commands import agentlip
from tests.support.courier import (
    enqueue,
    stats,
)
from tests.support.repository import IDENTITY, commit, git, new_repository
from tests.support.until import until


def test_missing_command_is_an_error_and_counts_no_attempt(hub, stream):
    enqueue(hub, stream, "a")
    words = ("courier", "subscribe", stream, "--", "/no/such/command")
    done = agentlip(*words, cwd=hub.workspace)
    message = "Error: /no/such/command: No such file or directory"
    assert (done.code, done.err.splitlines()[0]) == (1, message)
    until(lambda: stats(hub, stream)["ready"] == 1, 10, "it is back")
    assert hub.request("GET", f"/v1/envelope?stream={stream}&id=a")["attempts"] == 0


def test_skill_answers_a_request_with_the_diff(hub, stream, tmp_path, monkeypatch):
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    repository = new_repository(tmp_path / "repository")
    before = git(repository, "rev-parse", "HEAD")
    commit(repository, {"new.txt": "a new line\n"})
    payload = {"from": before, "to": "HEAD", "paths": ["new.txt"]}
    asked = {"type": "git.diff.request", "from": "ada", "corr": "c-1", "payload": payload}
    envelope = {**asked, "id": "ask-1", "ts": "2026-11-28T12:00:00Z"}
    hub.request("POST", "/v1/enqueue", {"to": stream, "envelope": envelope})
    words = ("courier", "skill", "git.diff", "--stream", stream, "--exit-after", "1")
    done = agentlip(*words, "--repository", str(repository), cwd=hub.workspace)
    assert done.code == 0, done.err
    (row,) = hub.request("GET", "/v1/peek?stream=agents/ada/inbox")["envelopes"]
    answer = hub.request("GET", f"/v1/envelope?stream=agents/ada/inbox&id={row['id']}")
    assert (row["id"], answer["envelope"]["corr"]) == ("r-ask-1", "c-1")
    assert "+a new line" in answer["envelope"]["payload"]["diff"]
