"""Which hub a client finds, and the proof it needs before it trusts that hub."""

import json
import os
from pathlib import Path

import pytest

from appliance.sdk.discovery import (
    BadAddress,
    Endpoint,
    HubNotRunning,
    StaleServerFile,
    find_hub,
    local,
)
from appliance.sdk.reader import WorkspaceReader
from appliance.workspace.datadir import WriterLock
from tests.support.faulty_hub import FakeHttp, http_hub
from tests.support.workspaces import Filled


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return Filled(tmp_path / "w")


def _announce(filled: Filled, **server: object) -> None:
    text = json.dumps({"host": "127.0.0.1", "auth_token": "a" * 64, "pid": 1, **server})
    filled.datadir.server_file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"AGENTLIP_TOKEN": "from-variable"}, "from-variable"),
        ({"AGENTLIP_TOKEN": " from-variable\n"}, "from-variable"),
        ({"AGENTLIP_TOKEN_FILE": "FILE"}, "from-file"),
        ({"AGENTLIP_TOKEN": "from-variable", "AGENTLIP_TOKEN_FILE": "FILE"}, "from-variable"),
        ({"AGENTLIP_TOKEN": "", "AGENTLIP_TOKEN_FILE": "FILE"}, "from-file"),
    ],
)
def test_token_of_the_environment(
    tmp_path: Path, given: dict[str, str], expected: str | None
) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    given = {name: text.replace("FILE", str(file)) for name, text in given.items()}
    environment = {"AGENTLIP_URL": "http://127.0.0.1:1", **given}
    assert find_hub(None, environment).token == expected


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:7464 ", " http://127.0.0.1:7464", "http://127.0.0.1:7464\n",
        "http://hub example.org", "http://127.0.0.1\n:7464", "http://127.0.0.1:7464/a b",
        "http://127.0.0.1:7464/é", "http://hub..example.org", f"http://{'a' * 64}.org",
        "http://", "http://:7464", "127.0.0.1:7464", "http://[::1", "http://127.0.0.1:99999",
        "http://127.0.0.1\x00:7464", "http://127.0.0.1:7464/\x7f", "http://hub\udcff.org",
    ],
)  # fmt: skip
def test_malformed_address_variable_is_refused_by_name(url: str) -> None:
    with pytest.raises(BadAddress) as raised:
        find_hub(None, {"AGENTLIP_URL": url})
    assert "AGENTLIP_URL must look like http://127.0.0.1:7464" in raised.value.message


def test_hub_that_holds_our_database_is_trusted(filled: Filled) -> None:
    with WorkspaceReader(filled.datadir.database("hub")) as reader:
        db_id = reader.db_id
    fake = FakeHttp((200, {}, {"status": "ok", "instance_id": "i", "db_id": db_id}))
    with http_hub(fake) as endpoint:
        for host in ("127.0.0.1", "0.0.0.0", ""):
            _announce(filled, port=endpoint.port, host=host)
            local_endpoint, health = local(filled.datadir, {})
            assert local_endpoint == Endpoint("127.0.0.1", endpoint.port, token="a" * 64)
            assert health.db_id == db_id


@pytest.mark.parametrize("answer", [(200, {}, {"db_id": "other"}), (200, {}, {"status": "ok"})])
def test_server_without_our_database_is_stale(filled: Filled, answer: object) -> None:
    fake = FakeHttp(answer)  # type: ignore[arg-type]
    with http_hub(fake) as endpoint:
        _announce(filled, port=endpoint.port)
        with pytest.raises(StaleServerFile):
            local(filled.datadir, {})


def test_hub_without_details_for_strangers_is_trusted_by_its_lock(filled: Filled) -> None:
    """Beyond loopback /health has no details; then who holds the lock decides."""
    lock = WriterLock(filled.datadir, "i")
    lock.acquire()
    try:
        with http_hub(FakeHttp((200, {}, {"status": "ok"}))) as endpoint:
            _announce(filled, port=endpoint.port, pid=os.getpid())
            assert local(filled.datadir, {})[0].port == endpoint.port
            _announce(filled, port=endpoint.port, pid=1)
            with pytest.raises(StaleServerFile):
                local(filled.datadir, {})
    finally:
        lock.release()


def test_copy_of_a_workspace_does_not_lead_to_the_original(filled: Filled) -> None:
    lock = WriterLock(filled.datadir, "i")
    lock.acquire()
    lock.release()
    with WorkspaceReader(filled.datadir.database("hub")) as reader:
        answer = (200, {}, {"db_id": reader.db_id})
    with http_hub(FakeHttp(answer)) as endpoint:
        _announce(filled, port=endpoint.port, pid=os.getpid(), app_version="1")
        with pytest.raises(StaleServerFile, match="serves the workspace that this is a copy of"):
            local(filled.datadir, {})


@pytest.mark.parametrize("answer", [(500, {}, {}), (200, {}, b"no json"), "hang up"])
def test_server_that_is_not_a_hub_does_not_count_as_running(filled: Filled, answer: object) -> None:
    with http_hub(FakeHttp(answer)) as endpoint:  # type: ignore[arg-type]
        _announce(filled, port=endpoint.port)
        with pytest.raises(HubNotRunning) as raised:
            local(filled.datadir, {})
    assert str(filled.datadir.server_file) in raised.value.details["searched"]
    assert "agentlipd up" in raised.value.hint
