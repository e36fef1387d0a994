"""`agentlip mcp` as a process, and the snippets that clients are given."""

import json
import tomllib
from pathlib import Path

import pytest

from appliance.mcp.clients import CLIENTS
from tests.support.commands import agentlip, succeed
from tests.support.hubprocess import HubProcess

pytestmark = pytest.mark.slow

UNDER = {
    "claude-code": "mcpServers",
    "claude-desktop": "mcpServers",
    "cursor": "mcpServers",
    "vscode": "servers",
    "gemini-cli": "mcpServers",
    "zed": "context_servers",
}


def test_without_a_hub_every_request_gets_an_error_with_a_hint(tmp_path: Path) -> None:
    text = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    done = succeed("mcp", "--workspace", tmp_path, cwd=tmp_path, stdin=text)
    (reply,) = done.lines
    assert "agentlip init" in reply["error"]["data"]["hint"]
    assert "agentlip mcp: no workspace" in done.err


@pytest.mark.parametrize("client", CLIENTS)
def test_printed_configuration_starts_the_bridge_for_the_workspace(
    hub: HubProcess, client: str
) -> None:
    done = succeed("mcp", "config", client, "--json", "--workspace", hub.workspace, cwd=Path("/"))
    snippet = done.json["snippet"]
    if client in UNDER:
        entry = json.loads(snippet)[UNDER[client]]["agentlip"]
    elif client == "codex":
        entry = tomllib.loads(snippet)["mcp_servers"]["agentlip"]
    else:
        assert snippet.endswith(f"mcp --workspace {hub.workspace}")
        return
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-3:] == ["mcp", "--workspace", str(hub.workspace)]
    assert hub.token not in done.out


def test_paths_with_spaces_and_quotes_are_quoted(tmp_path: Path) -> None:
    odd = tmp_path / 'a "quoted" füge'
    agentlip("init", odd, cwd=tmp_path)
    for client, load in (("codex", tomllib.loads), ("cursor", json.loads)):
        done = agentlip("mcp", "config", client, "--json", cwd=odd)
        entry = next(iter(load(done.json["snippet"]).values()))["agentlip"]
        assert entry["args"][-1] == str(odd)
