"""The section "Elsewhere" of docs/how-to/back-up.md, as written, with a real server.

Only addresses, keys and directories are replaced; `age-keygen` is done by the library.
"""

import re
import shlex
import subprocess
from pathlib import Path

import pyrage
import pytest

from tests.support.commands import ROOT, agentlip, command, environment, succeed
from tests.support.s3server import S3Server
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs" / "how-to" / "back-up.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    section = PAGE.read_text().partition("\n## Elsewhere\n")[2].partition("\n## ")[0]
    return [text for kind, text in BLOCK.findall(section) if kind == language]


def commands() -> list[str]:
    """All commands of the section, one per line, as a reader enters them."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) == 9, "the section has other commands; let this test run them"
    return lines


def test_section_works_as_written(s3: S3Server, tmp_path: Path) -> None:
    workspace, machine, disk = tmp_path / "workspace", tmp_path / "machine", tmp_path / "disk"
    filled = Filled(workspace, messages=50)
    for folder in (machine, disk):
        folder.mkdir()
    identity = pyrage.x25519.Identity.generate()
    (machine / "backup-key.txt").write_text(f"{identity}\n")
    given = {
        "age1yourpublickey": str(identity.to_public()),
        "https://s3.example.com": s3.endpoint,
        "/etc/agentlip/s3-access-key": str(s3.keys / "access"),
        "/etc/agentlip/s3-secret-key": str(s3.keys / "secret"),
        "/mnt/backups": str(disk),
        "/srv/": f"{tmp_path}/",
    }

    def filled_in(text: str) -> str:
        for name, value in given.items():
            text = text.replace(name, value)
        return text

    (settings,) = blocks("toml")
    (workspace / "agentlip.toml").write_text(filled_in(settings))
    keygen, create, upload, listing, *restoring, opening = map(filled_in, commands())
    assert keygen == "age-keygen -o backup-key.txt"
    for line in (create, upload, listing):
        done = succeed(*shlex.split(line)[1:], cwd=workspace)
    assert [line.split()[:2] for line in done.out.splitlines()[1:]] == [
        ["offsite", "ok"],
        ["disk", "ok"],
    ]

    script = "\n".join(["set -eu", 'agentlip() { "$PYTHON" -c "$ENTRY" "$@"; }', *restoring])
    (machine / "agentlip.toml").write_text(filled_in(settings))
    python, _, entry = command("agentlip")
    done = subprocess.run(
        ["sh", "-c", script], cwd=machine, env=environment(PYTHON=python, ENTRY=entry),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    (database,) = (tmp_path / "agentlip" / ".agentlip").glob("db.sqlite3")
    assert database.stat().st_size > 0
    page = agentlip("backup", "list", "--json", cwd=workspace)
    assert len(page.json) == 1
    restored = Filled.__new__(Filled)
    restored.datadir = type(filled.datadir)(tmp_path / "agentlip")
    with restored.connect() as connection:
        rows = connection.execute("SELECT count(*) FROM messages").fetchone()
    connection.close()
    assert rows == (50,)
    assert opening.startswith("age -d -i backup-key.txt db.sqlite3.zst.age | zstd -d")
