"""`agentlip mcp` as a process, and the snippets that clients are given."""

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.sdk.mcp_clients import CLIENTS
from tests.support.commands import agentlip, succeed
from tests.support.hubprocess import HubProcess

pytestmark = pytest.mark.slow


def test_without_a_hub_every_request_gets_an_error_with_a_hint(tmp_path: Path) -> None:
    text = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    done = succeed("mcp", "--workspace", tmp_path, cwd=tmp_path, stdin=text)
    (reply,) = done.lines
    assert "agentlip init" in reply["error"]["data"]["hint"]
    assert "agentlip mcp: no workspace" in done.err


LOADERS: dict[str, Any] = {"codex": tomllib.loads, "goose": yaml.safe_load}
URL = "https://agents.example.org"


def entry_of(client: str, snippet: str) -> Any:
    """What stands under our name, which is the only one at each level."""
    value = LOADERS.get(client, json.loads)(snippet)
    while list(value) != ["agentlip"]:
        (value,) = value.values()
    return value["agentlip"]


@pytest.mark.parametrize("client", CLIENTS)
def test_printed_configuration_starts_the_bridge_for_the_workspace(
    hub: HubProcess, client: str
) -> None:
    flags = ("--json", "--workspace", hub.workspace, "--tools", "bus,jobs")
    done = succeed("mcp", "config", client, *flags, cwd=Path("/"))
    words = ["mcp", "--workspace", str(hub.workspace), "--tools", "bus,jobs"]
    assert hub.token not in done.out
    if client == "generic":
        assert shlex.split(done.json["snippet"])[-5:] == words
        return
    entry = entry_of(client, done.json["snippet"])
    command = entry.get("command", entry.get("cmd"))
    started = [*([command] if isinstance(command, str) else command), *entry.get("args", [])]
    assert Path(started[0]).is_absolute()
    assert started[-5:] == words


@pytest.mark.parametrize("client", sorted(set(CLIENTS) - {"claude-desktop"}))
def test_configuration_for_a_url_has_it_and_no_token(tmp_path: Path, client: str) -> None:
    flags = ("--json", "--url", URL, "--tools", "default,bus")
    snippet = succeed("mcp", "config", client, *flags, cwd=tmp_path).json["snippet"]
    assert f"{URL}/mcp?tools=default,bus" in snippet
    assert "Bearer" not in snippet
    if client != "generic":
        assert f"{URL}/mcp?tools=default,bus" in entry_of(client, snippet).values()


def test_unusable_urls_are_refused_with_a_hint(tmp_path: Path) -> None:
    for url in ("agents.example.org", "ftp://x/", "https://x/?a=b"):
        assert agentlip("mcp", "config", "cursor", "--url", url, cwd=tmp_path).code == 1
    refused = agentlip("mcp", "config", "claude-desktop", "--url", URL, cwd=tmp_path)
    assert "can't name a URL" in refused.err


def test_paths_with_spaces_and_quotes_are_quoted(tmp_path: Path) -> None:
    odd = tmp_path / 'a "quoted" füge'
    agentlip("init", odd, cwd=tmp_path)
    for client, load in (("codex", tomllib.loads), ("cursor", json.loads)):
        done = agentlip("mcp", "config", client, "--json", cwd=odd)
        entry = next(iter(load(done.json["snippet"]).values()))["agentlip"]
        assert entry["args"][-1] == str(odd)
