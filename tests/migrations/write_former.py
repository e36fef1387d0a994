"""Writes a workspace as the program of an old commit left it, for the tests of upgrades.

    python -m tests.migrations.write_former COMMIT…

The program of that commit runs in a temporary folder, is given a few messages, sends and envelopes
through its own API, and is stopped. Its files become `former/NUMBER-COMMIT.tar.xz`. Needs the whole
history, so the files are kept in the repository and this is run once for each new schema.
"""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.until import until

ROOT = Path(__file__).parents[2]
FORMER = Path(__file__).parent / "former"
LEFT_OUT = ("logs", "locks", "server.json", "sock")
SETTINGS = {  # sections that the program of a commit may have
    "outbox": '[[outbox.brokers]]\nmesh = "lab"\nurl = "http://127.0.0.1:9"\n',
    "courier": '[[courier.streams]]\npattern = "agents/one/inbox"\ndurable = true\n',
}


class FormerProgram:
    """The appliance of a commit, serving a workspace."""

    def __init__(self, code: Path, workspace: Path) -> None:
        self.workspace = workspace
        environment = {"PATH": os.environ["PATH"], "HOME": str(workspace), "PYTHONPATH": str(code)}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "appliance.server"),
                *("--workspace", str(workspace), "--port", "0"),
            ],
            env=environment,
            cwd=workspace,
            stdout=subprocess.DEVNULL,
            stderr=(workspace / "server.log").open("wb"),
        )
        self.data = workspace / ".agentlip"
        self.url = until(self._address, 300, "an answer")

    def request(self, method: str, path: str, body: Any = None) -> Any:
        token = (self.data / "token").read_text().strip()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as error:
            print(f"  {method} {path}: {error.code} {error.read()[:100]!r}")
            return None

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0

    def _address(self) -> str:
        assert self.process.poll() is None, (self.workspace / "server.log").read_text()
        try:
            port = json.loads((self.data / "server.json").read_text())["port"]
            url = f"http://127.0.0.1:{port}"
            urllib.request.urlopen(f"{url}/health", timeout=2).close()
        except (OSError, ValueError):
            return ""
        return url


def fill(program: FormerProgram) -> None:
    """As much as the program of any version knows; what it does not know it refuses."""
    channel = program.request("POST", "/api/v1/channels", {"name": "general"})["channel"]
    body = {"channel_id": channel["id"], "title": "Builds"}
    topic = program.request("POST", "/api/v1/topics", body)["topic"]
    for number in range(5):
        text = f"message {number}: the build of 日本 is green"
        body = {"topic_id": topic["id"], "sender": "agent-1", "content_raw": text}
        message = program.request("POST", "/api/v1/messages", body)["message"]
    edit = {"op": "edit", "content_raw": "the last one, edited", "expected_version": 1}
    program.request("PATCH", f"/api/v1/messages/{message['id']}", edit)
    program.request("POST", "/api/v1/tokens", {"name": "reader", "scopes": ["hub:read"]})
    program.request("POST", "/broker/v1/meshes", {"slug": "lab"})
    send = {"to": "#alerts", "mesh": "lab", "message": "kept until delivered"}
    program.request("POST", "/v1/send", send)
    envelope = {"id": "e1", "ts": "2026-01-01T00:00:00Z", "type": "job", "payload": {"work": 1}}
    program.request("POST", "/v1/enqueue", {"to": "agents/one/inbox", "envelope": envelope})


def write(commit: str, number: int) -> Path:
    commit = _git("rev-parse", "--short=7", commit).decode().strip()
    target = FORMER / f"{number:02}-{commit}.tar.xz"
    with tempfile.TemporaryDirectory() as folder:
        code, workspace = Path(folder) / "code", Path(folder) / "workspace"
        workspace.mkdir()
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as archive:
            archive.extractall(code, filter="data")
        known = (code / "appliance" / "settings.py").read_text()
        (workspace / "agentlip.toml").write_text(
            "".join(text for part, text in SETTINGS.items() if f"\n    {part}: " in known)
        )
        program = FormerProgram(code, workspace)
        try:
            fill(program)
        finally:
            program.stop()
        with tarfile.open(target, "w:xz") as archive:
            for name in ("agentlip.toml", ".agentlip"):
                if (workspace / name).exists():
                    archive.add(workspace / name, name, filter=_kept)
    return target


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if Path(member.name).name in LEFT_OUT:
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, check=True).stdout


if __name__ == "__main__":
    FORMER.mkdir(exist_ok=True)
    first = len(list(FORMER.glob("*.tar.xz"))) + 1
    for position, name in enumerate(sys.argv[1:], first):
        print(write(name, position))
