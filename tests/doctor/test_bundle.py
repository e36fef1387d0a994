"""A support bundle has the facts that help, and none of the secrets, texts and names."""

import gzip
import json
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import pytest

from doctor.redaction import Redaction
from tests.doctor.conversation import converse
from tests.doctor.repairs import doctor
from tests.doctor.workspace import NOW, WorkspaceFixture

CANARY = "kanarienvogel"
PARTS = {"versions.json", "settings.json", "files.json", "doctor.json"}


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceFixture:
    made = WorkspaceFixture(tmp_path / "ws")
    converse(made, 40)
    return made


def bundle(workspace: WorkspaceFixture, out: Path, *more: str) -> dict[str, bytes]:
    """The files of a new bundle, by name."""
    done = doctor(workspace, "bundle", "--out", str(out), *more)
    assert done.exit_code == 0, done.output
    return contents(out)


def contents(out: Path) -> dict[str, bytes]:
    with tarfile.open(out) as archive:
        files = [(entry.name, archive.extractfile(entry)) for entry in archive.getmembers()]
        return {
            name.removeprefix("agentlip-bundle/"): file.read()
            for name, file in files
            if file is not None
        }


def plant(workspace: WorkspaceFixture) -> None:
    """Canaries wherever a workspace holds secrets, texts of people, or addresses."""
    data, secret = workspace.data, f"{CANARY}-secret-0123456789"
    data.write_private(data.token_file, f"{CANARY}Token0123456789abcdef\n")
    workspace.announce(auth_token=f"{CANARY}ServerToken0123456789")
    (data.dir / "identity").mkdir(exist_ok=True)
    keys = {"private_key": f"{CANARY}0123456789abcdef0123456789", "public_key": "ab" * 32}
    (data.dir / "identity" / "keypair.json").write_text(json.dumps(keys))
    (data.workspace / "password").write_text(f"{CANARY}-password")
    data.settings_file.write_text(
        f'[mail]\nhost = "{CANARY}.example"\nuser = "{CANARY}-user"\npassword_file = "password"\n'
        f'[{CANARY}-section]\n{CANARY}-key = "{CANARY}-value"\n[log]\nlevel = "{CANARY}-level"\n'
        f'[[plugins.use]]\nname = "{CANARY}-plugin"\ntype = "linkifier"\n[plugins.use.config]\n'
        f'api_key = "{CANARY}-api"\n'
    )
    url = f"https://user:{CANARY}@hooks.example/services/{CANARY}?key={CANARY}"
    workspace.execute(
        "INSERT INTO x_webhooks (id, url, description, wanted_json, enabled, cursor,"
        " secret, former_secret, created_at, updated_at, disabled_because) VALUES ('wh_1', ?, ?,"
        " '{}', 0, 0, ?, ?, ?, ?, ?)",
        url, CANARY, secret, secret + "-former", NOW, NOW, f"{url} returned 500",
    )  # fmt: skip
    workspace.execute("UPDATE messages SET content_raw = ?, sender = ?", CANARY, CANARY)
    workspace.execute("UPDATE topics SET title = title || ?", CANARY)
    workspace.execute("UPDATE channels SET name = name || ?", CANARY)
    workspace.execute(
        "INSERT INTO events (ts, name, scope_channel_id, entity_type, entity_id, data_json)"
        " VALUES (?, 'message.edited', 'c', 'message', 'm', ?)",
        NOW, json.dumps({"new_content": CANARY}),
    )  # fmt: skip
    data.logs.mkdir(exist_ok=True)
    lines: list[Any] = [
        {"level": "info", "ts": NOW, "msg": f"delivered to {url}", "token": CANARY},
        {"level": "info", "ts": NOW, "msg": CANARY, "logger": "library"},
        {"level": "error", "ts": NOW, "msg": "failed", "text": CANARY, "sender": CANARY, "n": 7},
        {"level": "error", "ts": NOW, "msg": f"token {CANARY}Token0123456789abcdef was refused"},
        {"level": "error", "ts": NOW, "msg": f"{secret} and {secret}-former"},
    ]
    text = "\n".join(json.dumps(line) for line in lines)
    (data.logs / "agentlipd.log").write_text(f"{text}\nTraceback: {CANARY}\n")
    (data.logs / "agentlipd.log.1").write_text(f"not JSON: {CANARY}\n")


def test_bundle_has_every_part(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    files = bundle(workspace, tmp_path / "out.tar.gz")
    assert set(files) == PARTS
    names = {entry["name"] for entry in json.loads(files["files.json"])}
    assert ".agentlip/db.sqlite3" in names
    versions = json.loads(files["versions.json"])
    assert versions["sqlite"] == sqlite3.sqlite_version
    assert "msgspec" in versions["libraries"]
    assert (tmp_path / "out.tar.gz").stat().st_mode & 0o777 == 0o600


def test_planted_secrets_texts_and_names_are_nowhere_in_the_archive(
    workspace: WorkspaceFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(workspace)
    monkeypatch.setenv("AGENTLIP_TOKEN", f"{CANARY}-environment")
    monkeypatch.setenv("AGENTLIP_MAIL__USER", f"{CANARY}-mail-user")
    monkeypatch.setenv("AGENTLIP_UNKNOWN__KEY", f"{CANARY}-unknown")
    monkeypatch.setenv("HOME", f"/home/{CANARY}")
    bundle(workspace, tmp_path / "out.tar.gz")
    everything = gzip.decompress((tmp_path / "out.tar.gz").read_bytes())
    at = everything.lower().find(CANARY.encode())
    assert at == -1, everything[max(0, at - 300) : at + 200]
    files = contents(tmp_path / "out.tar.gz")
    assert str(workspace.data.workspace).encode() not in b"".join(files.values())
    log = files["logs/agentlipd.log"].decode().splitlines()
    assert json.loads(log[2]) == {"level": "error", "ts": NOW, "msg": "failed", "n": 7}
    assert b"Traceback" not in files["logs/agentlipd.log"]
    assert files["logs/agentlipd.log.1"] == b""


def test_damaged_stores_and_settings_are_described(
    workspace: WorkspaceFixture, tmp_path: Path
) -> None:
    for store in ("hub", "auth", "broker"):
        path = workspace.data.database(store)
        path.write_bytes(b"garbage" * 500)
    workspace.data.settings_file.write_text("not [ TOML")
    files = bundle(workspace, tmp_path / "out.tar.gz")
    assert json.loads(files["settings.json"]) == {"settings": {}}
    assert json.loads(files["doctor.json"])["errors"] > 0


def test_existing_file_is_not_overwritten(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("precious")
    done = doctor(workspace, "bundle", "--out", str(tmp_path / "out"))
    assert done.exit_code == 3
    assert (tmp_path / "out").read_text() == "precious"
    assert doctor(workspace, "bundle", "--out", str(tmp_path / "no" / "out")).exit_code == 3


def test_redaction_keeps_what_identifies_nothing() -> None:
    redaction = Redaction({"s3cret-value"}, {"/srv/space": "[workspace]"})
    text = "event 4711 of 0b4bb0b1-7f8f-4a0e-9d9d-0d3d6b1c2a3f in /srv/space: s3cret-value"
    assert redaction.text(text) == (
        "event 4711 of 0b4bb0b1-7f8f-4a0e-9d9d-0d3d6b1c2a3f in [workspace]: [secret]"
    )
    assert redaction.text("https://u:p@h.example/a/b?c=d") == "https://h.example/[path]"
    assert redaction.text("write to ada@mail.example") == "write to [mail address]"
    assert redaction.text("/Users/ada/x") == "/Users/[user]/x"
    assert redaction.text("key 0123456789abcdef0123456789abcdef") == "key [long word]"
