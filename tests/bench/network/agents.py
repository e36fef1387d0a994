"""A workspace whose relay has agents and contacts before it starts, and their signed requests."""

import hashlib
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.network.keys import AgentKey
from appliance.network.request import request_headers
from appliance.workspace.datadir import DataDir
from appliance.workspace.schema import create_workspace
from tests.bench.target import Target


def key(name: str) -> AgentKey:
    return AgentKey(hashlib.sha256(name.encode()).digest())


def make_relay(workspace: Path, endpoints: dict[str, str], contacts: list[tuple[str, str]]) -> None:
    """Agents by name, with their endpoints; each pair is in alphabetical order."""
    workspace.mkdir(parents=True)
    (workspace / "agentlip.toml").write_text(
        '[roles]\nrelay = true\n[relay]\noptions = ["loopback-endpoints"]\n'
    )
    data = DataDir(workspace)
    create_workspace(data, clock=SystemClock(), log=Log(sys.stderr.buffer, level="error"))
    now_ms = SystemClock().now_ms()
    with closing(sqlite3.connect(data.database("relay"))) as connection, connection:
        connection.executemany(
            "INSERT INTO agents (name, public_key, owner_email, endpoint, version, status, address,"
            " created_ms, last_seen_ms)"
            " VALUES (?, ?, 'a@example.org', ?, '2.1', 'active', '', ?, ?)",
            [(name, str(key(name).public), url, now_ms, now_ms) for name, url in endpoints.items()],
        )
        connection.executemany(
            "INSERT INTO contacts VALUES (?, ?, 'active', ?, NULL, ?, ?)",
            [(*pair, pair[0], now_ms, now_ms) for pair in contacts],
        )


def signed(target: Target, by: str, method: str, path: str, body: bytes = b"") -> bytes:
    """A whole request. It is good for five minutes."""
    headers = request_headers(key(by), by, method, path, body, time.time_ns() // 1_000_000)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {target.host}:{target.port}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
