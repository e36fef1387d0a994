"""The checks of tokens, inbox, outbox, broker, courier, hub, plugins and identity: each finds what
was broken, and nothing in a workspace that is in order."""

import msgspec
import pytest

from appliance.backup.backup_directory import ListedBackup
from appliance.identity import keys
from appliance.inbox.wire import NETWORK
from appliance.kernel.auth import hash_token
from appliance.kernel.clock import SystemClock, iso
from appliance.network.keys import AgentKey
from appliance.outbox.target import KEY_REFUSALS
from tests.doctor.workspace import HEALTHY_STORE, WorkspaceFixture
from tests.support.commands import agentlip

KEY = "a" * 64
OTHER_KEY = "b" * 64
NETWORK_KEY = str(AgentKey.generate().public)


def now_ms() -> int:
    return SystemClock().now_ms()


def problems(workspace: WorkspaceFixture, name: str) -> list[tuple[str, str]]:
    return [(each.severity.value, each.problem) for each in workspace.find(name)]


# -- tokens ------------------------------------------------------------------------------------


def issue(
    workspace: WorkspaceFixture,
    token: str,
    token_id: str = "server",
    scopes: str = '["admin"]',
    **ends: int | None,
) -> None:
    workspace.execute(
        "INSERT OR REPLACE INTO tokens (id, name, hash, scopes, created_ms, expires_ms, revoked_ms,"
        " last_used_ms) VALUES (?, ?, ?, ?, 1, ?, ?, ?)",
        token_id,
        token_id,
        hash_token(token),
        scopes,
        ends.get("expires_ms"),
        ends.get("revoked_ms"),
        ends.get("last_used_ms"),
        store="auth",
    )


def own_token(workspace: WorkspaceFixture) -> str:
    token = workspace.data.read_token()
    assert token is not None
    return token


def test_the_token_of_this_workspace_is_legal(workspace) -> None:
    assert problems(workspace, "tokens.file") == []
    issue(workspace, own_token(workspace))
    assert problems(workspace, "tokens.file") == problems(workspace, "tokens.admin") == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [("foreign", "not issued"), ("rotated", "rotated"), ("other", "another token")],
)
def test_another_token_in_the_file_is_found(workspace, kind: str, words: str) -> None:
    issue(workspace, "present")
    token = own_token(workspace)
    if kind == "rotated":
        workspace.execute(
            "INSERT INTO retired VALUES (?, 'server', 1)", hash_token(token), store="auth"
        )
    elif kind == "other":
        issue(workspace, token, "tok_1")
    (finding,) = workspace.find("tokens.file")
    assert finding.severity.value == "warning"
    assert words in finding.message
    with workspace.running():
        assert problems(workspace, "tokens.file") == [("error", "foreign")]


@pytest.mark.parametrize(
    ("scopes", "ends", "expected"),
    [
        ('["hub:read"]', {}, [("error", "no-admin")]),
        ('["admin"]', {"expires_ms": 5}, [("error", "no-admin")]),
        ('["admin"]', {"revoked_ms": 5}, [("error", "no-admin")]),
        ("rubbish", {}, [("error", "no-admin")]),
        ('["admin"]', {"expires_ms": 1 << 50}, []),
    ],
)
def test_a_workspace_without_an_admin_token_is_found(
    workspace, scopes: str, ends: dict[str, int], expected: list[tuple[str, str]]
) -> None:
    issue(workspace, "present", "tok_1", scopes, **ends)
    assert problems(workspace, "tokens.admin") == expected


@pytest.mark.parametrize(
    ("ends", "count"),
    [
        ({"expires_ms": 1000, "last_used_ms": 900_000}, 1),
        ({"revoked_ms": 1000, "expires_ms": 1 << 50, "last_used_ms": 900_000}, 1),
        ({"expires_ms": 1000, "last_used_ms": 999}, 0),
        ({"expires_ms": None, "last_used_ms": 900_000}, 0),
    ],
)
def test_a_token_used_after_its_end_is_found(
    workspace, ends: dict[str, int | None], count: int
) -> None:
    issue(workspace, "present", "tok_1", **ends)
    assert problems(workspace, "tokens.ended") == [("warning", "used-after-end")] * count


# -- inbox -------------------------------------------------------------------------------------


def receive(
    workspace: WorkspaceFixture,
    client_id: str = "c1",
    at_ms: int = 1,
    key: str = KEY,
    own: int = 0,
    broker_id: str = "b1",
    mesh: str = "default",
) -> None:
    workspace.execute(
        "INSERT INTO inbox (id, client_message_id, broker_message_id, mesh, sender_pubkey,"
        " sender_name, received_at, destination_kind, destination_ref, priority, created_at, own)"
        " VALUES (?, ?, ?, ?, ?, 'x', ?, 'topic', 't', 'next', 'now', ?)",
        f"in_{client_id}_{at_ms}",
        client_id,
        broker_id,
        mesh,
        key,
        at_ms,
        own,
        store="inbox",
    )


@pytest.mark.parametrize(
    ("columns", "count"),
    [
        ({}, 0),
        ({"client_id": ""}, 1),
        ({"broker_id": ""}, 1),
        ({"key": "short"}, 1),
        ({"key": NETWORK_KEY, "mesh": NETWORK}, 0),
        ({"key": "", "mesh": NETWORK}, 0),
        ({"key": ""}, 1),
        ({"key": NETWORK_KEY}, 1),
        ({"key": KEY, "mesh": NETWORK}, 1),
    ],
)
def test_a_message_without_ids_is_found(workspace, columns: dict[str, str], count: int) -> None:
    receive(workspace, "c0")
    receive(workspace, **{"client_id": "c1", **columns})
    assert problems(workspace, "inbox.ids") == [("error", "no-id")] * count


def test_a_mesh_that_revoked_the_key_is_found(workspace) -> None:
    assert problems(workspace, "inbox.revoked") == []
    workspace.execute("INSERT INTO revoked VALUES ('default', ?, 1)", KEY, store="inbox")
    assert problems(workspace, "inbox.revoked") == [("warning", "revoked")]


# -- outbox ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(KEY_REFUSALS))
def test_sends_that_wait_because_of_the_key_are_found(workspace, code: str) -> None:
    """They were found after an hour only, without the reason."""
    for number in range(3):
        send(workspace, f"s{number}", "pending")
    assert problems(workspace, "outbox.refused") == []
    workspace.execute(
        "UPDATE outbox SET last_error = ?", f"403: this key is refused, {code}", store="outbox"
    )
    assert problems(workspace, "outbox.refused") == [("warning", "not-a-member")]


def send(workspace: WorkspaceFixture, send_id: str, status: str) -> None:
    workspace.execute(
        "INSERT INTO outbox (id, client_message_id, request_fingerprint, payload, enqueued_at,"
        " next_attempt_at, status, mesh, target, route, destination_kind, destination_ref,"
        " priority) VALUES (?, ?, zeroblob(32), x'', 1, 1, ?, 'default', 'broker', 'r', 'topic',"
        " 't', 'next')",
        send_id,
        send_id,
        status,
        store="outbox",
    )


@pytest.mark.parametrize(
    ("sends_max", "expected"), [(100, []), (12, [("warning", "full")]), (10, [("error", "full")])]
)
def test_an_outbox_near_its_limit_is_found(
    workspace, sends_max: int, expected: list[tuple[str, str]]
) -> None:
    for number in range(10):
        send(workspace, f"s{number}", "pending" if number else "inflight")
    workspace.data.settings_file.write_text(f"[outbox]\nsends_max = {sends_max}\n")
    assert problems(workspace, "outbox.room") == expected


def test_an_outbox_file_near_its_limit_is_found(workspace) -> None:
    workspace.data.settings_file.write_text("[outbox]\nbytes_max = 1000\n")
    assert problems(workspace, "outbox.room") == [("error", "full")]


# -- broker ------------------------------------------------------------------------------------


def test_deliveries_of_unknown_recipients_are_found(workspace) -> None:
    for sql in (
        "INSERT INTO mesh VALUES ('m1', 'default', 'permanent', 7, 7, 'prefer_newest', 1)",
        f"INSERT INTO member VALUES ('m1', '{KEY}', 'alice', 1, 5, NULL)",
        "INSERT INTO webhook (mesh_id, id, url, added_ms) VALUES ('m1', 'w1', 'u', 1)",
        "INSERT INTO place VALUES ('m1', 'queue', 'jobs', 1)",
    ):
        workspace.execute(sql, store="broker")

    def deliver(recipient: str, mesh: str = "m1") -> None:
        workspace.execute(
            "INSERT INTO delivery_queue (mesh_id, broker_message_id, recipient, kind, rank,"
            " ready_ms, created_ms) VALUES (?, 'b', ?, 'topic', 1, 1, 1)",
            mesh,
            recipient,
            store="broker",
        )

    for recipient in (KEY, "webhook:w1", "queue:jobs"):
        deliver(recipient)
    assert problems(workspace, "broker.recipients") == []
    for recipient in (OTHER_KEY, "webhook:w2", "queue:other"):
        deliver(recipient)
    deliver(KEY, "m2")
    assert problems(workspace, "broker.recipients") == [("error", "unknown")] * 4


# -- courier -----------------------------------------------------------------------------------


def test_a_journal_above_the_limits_of_its_stream_is_found(workspace) -> None:
    for number in range(3):
        workspace.execute(
            "INSERT INTO journal (stream, id, body, priority, accepted_ms)"
            " VALUES ('jobs', ?, zeroblob(100), 0, 1)",
            str(number),
            store="courier",
        )
    streams = '[[courier.streams]]\npattern = "jobs"\ndurable = true\n'
    for limit, count in (
        ("depth_max = 3", 0),
        ("depth_max = 2", 1),
        ("bytes_max = 299", 1),
        ("depth_max = 2\nbytes_max = 299", 2),
    ):
        workspace.data.settings_file.write_text(f"[courier]\n{limit}\n{streams}")
        assert problems(workspace, "courier.limits") == [("warning", "over-limit")] * count


# -- hub ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cursor", "count"), [(3, 0), (4, 2)])
def test_cursors_beyond_the_log_are_found(workspace, cursor: int, count: int) -> None:
    workspace.talk(3)
    workspace.execute(
        "INSERT INTO x_webhooks (id, url, description, wanted_json, enabled, cursor,"
        " secret, created_at, updated_at) VALUES ('w', 'u', '', '{}', 1, ?, 's', '', '')",
        cursor,
    )
    workspace.execute("INSERT INTO x_plugin_cursors VALUES ('p', ?, NULL, NULL, '')", cursor)
    assert problems(workspace, "hub.cursors") == [("error", "ahead")] * count


# -- the writer, settings and plugins ----------------------------------------------------------


@pytest.mark.parametrize(("restarts", "expected"), [(2.0, []), (3.0, [("error", "restarting")])])
def test_a_writer_that_ends_again_and_again_is_found(
    workspace, restarts: float, expected: list[tuple[str, str]]
) -> None:
    with workspace.running({**HEALTHY_STORE, "writer_restarts": restarts}):
        assert problems(workspace, "store.writer") == expected


# -- member keys -------------------------------------------------------------------------------


def with_key(workspace: WorkspaceFixture, created_ms: int) -> keys.KeyPair:
    pair = keys.make(iso(created_ms))
    folder = workspace.data.dir / "identity"
    folder.mkdir(mode=0o700)
    workspace.data.write_private(folder / "keypair.json", msgspec.json.encode(pair).decode())
    return pair


def test_a_copy_of_the_member_key_is_found(workspace) -> None:
    pair = with_key(workspace, 1)
    assert problems(workspace, "identity.copied") == []
    for name in ("keypair.bak", "identity/keypair.json~", "backups/key"):
        (workspace.data.dir / name).write_bytes(msgspec.json.encode(pair))
    assert problems(workspace, "identity.copied") == [("warning", "second-file")] * 3


@pytest.mark.parametrize(("created_ms", "count"), [(1000, 1), (9000, 0)])
def test_a_key_of_another_workspace_is_found(workspace, created_ms: int, count: int) -> None:
    pair = with_key(workspace, created_ms)
    receive(workspace, "c1", 4000, pair.ed25519_pubkey, own=1)
    assert problems(workspace, "identity.copied") == []
    receive(workspace, "c2", 5000, OTHER_KEY, own=0)
    assert problems(workspace, "identity.copied") == []
    receive(workspace, "c3", 5000, OTHER_KEY, own=1)
    assert problems(workspace, "identity.copied") == [("warning", "other-workspace")] * count


# -- backup ------------------------------------------------------------------------------------


def test_backup_interval_that_is_set_and_not_kept_is_found(workspace, monkeypatch) -> None:
    workspace.talk()
    assert agentlip("backup", "create", cwd=workspace.data.workspace).code == 0
    monkeypatch.setattr(ListedBackup, "seconds", 7.2)
    assert problems(workspace, "backup.age") == [], "nobody asked for the default"
    file = workspace.data.settings_file
    file.write_text("[backup]\nevery_seconds = 600\n")
    (finding,) = workspace.find("backup.age")
    assert (finding.problem, finding.severity.value) == ("slower", "info")
    assert finding.message == "a backup takes 7.2 s, so one is made every 2.0 hours"
    file.write_text("[backup]\nevery_seconds = 7200\n")
    assert problems(workspace, "backup.age") == []
