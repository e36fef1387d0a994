"""What works with no hub at all, and what is said where one is needed."""

import json
from pathlib import Path

import pytest

from tests.support.commands import agentlip
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(tmp_path_factory.mktemp("filled"), messages=12)


def test_init_makes_a_workspace_once(tmp_path: Path) -> None:
    first = agentlip("init", "--json", cwd=tmp_path)
    second = agentlip("init", "--json", cwd=tmp_path)
    assert (first.code, second.code) == (0, 0)
    assert first.json["created"] is True
    assert second.json["created"] is False
    assert (tmp_path / ".agentlip" / "db.sqlite3").is_file()
    assert (tmp_path / ".agentlip" / "token").stat().st_mode & 0o777 == 0o600


def test_workspace_is_found_from_subdirectories_flags_and_environment(
    filled: Filled, tmp_path: Path
) -> None:
    below = filled.path / "a" / "b"
    below.mkdir(parents=True, exist_ok=True)
    ways = [
        agentlip("channel", "list", "--json", cwd=below),
        agentlip("--workspace", filled.path, "--json", "channel", "list", cwd=tmp_path),
        agentlip("channel", "list", "--workspace", filled.path, "--json", cwd=tmp_path),
        agentlip("channel", "list", "--json", cwd=tmp_path, AGENTLIP_WORKSPACE=str(filled.path)),
    ]
    assert all(done.code == 0 for done in ways), ways
    assert len({done.out for done in ways}) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["msg", "tail", "--topic-id", "nope"], 1, "topic not found: nope"),
        (["topic", "list", "--channel", "nope"], 1, "channel not found: nope"),
        (["msg", "tail"], 1, "give the topic by --topic-id"),
        (["msg", "tail", "--topic-id", "x", "--limit", "0"], 1, "positive"),
        (["msg", "send", "--topic-id", "x", "--sender", "s", "--content", "c"], 3, "agentlipd up"),
        (["channel", "create", "x"], 3, "server.json"),
        (["listen"], 3, "agentlipd up"),
        (["inbox", "mine", "--wait", "nan"], 1, "nan is not a number"),
        (["agent", "run", "a/b", "--", "true"], 1, "'a/b' can't be a part of a path"),
        (["msg", "send", "--topic-id", "x", "--sender", "s"], 1, "--content or by --stdin"),
    ],
)
def test_failure_prints_message_and_hint_with_an_exit_code(
    filled: Filled, arguments: list[str], code: int, words: str
) -> None:
    output = agentlip(*arguments, cwd=filled.path)
    assert output.code == code
    assert output.out == ""
    assert output.err.startswith("Error: ")
    assert words in output.err
    machine = agentlip(*arguments, "--json", cwd=filled.path)
    assert (machine.code, machine.out) == (code, "")
    body = json.loads(machine.err)
    assert {"error", "code", "details", "hint"} <= set(body)


def test_server_file_of_another_hub_is_stale_and_gets_no_token(filled: Filled) -> None:
    """Something else answers on the port that server.json names."""
    from tests.support.faulty_hub import FakeHttp, http_hub

    health = {"status": "ok", "instance_id": "i", "db_id": "another", "schema_version": 1}
    fake = FakeHttp((200, {}, health))
    with http_hub(fake) as endpoint:
        server = {"instance_id": "i", "port": endpoint.port, "pid": 1, "auth_token": "s" * 64}
        filled.datadir.server_file.write_text(json.dumps(server), encoding="utf-8")
        try:
            done = agentlip("channel", "create", "x", cwd=filled.path)
        finally:
            filled.datadir.server_file.unlink()
    assert done.code == 3
    assert "server.json is stale" in done.err
    assert [request["path"] for request in fake.requests] == ["/health"]
    assert "authorization" not in fake.requests[0]["headers"]
