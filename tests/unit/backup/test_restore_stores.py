"""What a restore does to each store: leases, nonces, tokens, sends, and references."""

import pytest

from appliance.backup import restore
from appliance.backup.errors import RestoreRefused
from appliance.workspace.datadir import DataDir
from tests.support.database_files import change
from tests.support.restored_workspace import BackedUp, content_of

pytestmark = pytest.mark.slow
NONCE = "INSERT INTO used_nonce VALUES (9999999999999, x'{:032x}', 'anna')"
TOKEN = (
    "INSERT INTO tokens (id, name, hash, scopes, created_ms) VALUES ('{0}', '{0}', '{0}', '[]', 1)"
)
SEND = (
    "INSERT INTO outbox (id, client_message_id, request_fingerprint, payload, enqueued_at,"
    " next_attempt_at, status, mesh, target, route, destination_kind, destination_ref, priority)"
    " VALUES ('{0}', '{0}', zeroblob(32), x'', 1, 1, '{1}', 'lab', '{2}', 'r', 'dm', '{3}', 'next')"
)
MEMBER = "INSERT INTO member (mesh_id, pubkey, name, added_ms) VALUES ('m', '{0}', '{1}', 1)"
DELIVERY = (
    "INSERT INTO delivery_queue (mesh_id, broker_message_id, recipient, kind, rank, ready_ms,"
    " created_ms) VALUES ('m', 'b', '{0}', 'topic', 1, 1, 1)"
)
WEBHOOK = (
    "INSERT INTO x_webhooks (id, url, description, wanted_json, enabled, cursor, secret,"
    " created_at, updated_at) VALUES ('{0}', 'u', '', '{{}}', 1, 0, 's', 't', 't')"
)


def execute(datadir: DataDir, store: str, *statements: str) -> None:
    change(datadir.database(store), *statements)


def noticed(done: restore.RestoreResult, kind: str, store: str) -> dict[str, int]:
    return {n.noun: n.count for n in done.plan.notices if (n.kind, n.store) == (kind, store)}


def test_signed_requests_since_the_backup_cannot_be_replayed(workspace: BackedUp) -> None:
    execute(workspace.datadir, "broker", NONCE.format(1))
    made = workspace.back_up()
    execute(workspace.datadir, "broker", NONCE.format(2))
    done = workspace.restore(made)
    assert workspace.rows("SELECT count(*) FROM used_nonce", "broker") == [(2,)]
    assert done.rows["broker"]["used_nonce"] == 2
    floor = "SELECT 1 FROM meta WHERE key = 'signed_after_ms'"
    assert workspace.rows(floor, "broker") == []


def test_leases_are_cleared(workspace: BackedUp) -> None:
    lease = (
        "INSERT INTO delivery_queue (mesh_id, broker_message_id, recipient, kind, rank, ready_ms,"
        " lease_owner, lease_until_ms, created_ms) VALUES ('m', 'b', 'r', 'dm', 1, 1, 'o', 2, 1)"
    )
    execute(workspace.datadir, "broker", lease)
    execute(workspace.datadir, "outbox", SEND.format("s1", "inflight", "broker", "x"))
    workspace.restore(workspace.back_up())
    assert workspace.rows("SELECT lease_owner FROM delivery_queue", "broker") == [(None,)]
    assert workspace.rows("SELECT status FROM outbox", "outbox") == [("pending",)]


@pytest.mark.parametrize("revive", [False, True])
def test_tokens_that_were_revoked_since_stay_so_unless_asked_for(
    workspace: BackedUp, revive: bool
) -> None:
    tokens = map(TOKEN.format, ("t1", "t2", "t4", "t5"))
    execute(workspace.datadir, "auth", *tokens, "INSERT INTO retired VALUES ('r4', 't4', 9)")
    made = workspace.back_up()
    execute(
        workspace.datadir,
        "auth",
        "UPDATE tokens SET revoked_ms = 5 WHERE id = 't1'",
        "UPDATE tokens SET hash = 'new' WHERE id = 't2'",
        "DELETE FROM retired",
        "INSERT INTO retired VALUES ('t2', 't2', 8)",
        "DELETE FROM tokens WHERE id = 't5'",
        TOKEN.format("t3"),
    )
    done = workspace.restore(made, revive=revive)
    revoked = {"token": 1, "a token's former secret": 1}
    unknown = {"token that is not known here": 1}
    again = noticed(done, "valid-again", "auth")
    assert again == (revoked | unknown if revive else unknown)
    assert noticed(done, "still-revoked", "auth") == ({} if revive else revoked)
    assert noticed(done, "lost", "auth") == {"token": 1}
    kept = dict(workspace.rows("SELECT id, hash FROM tokens WHERE revoked_ms IS NULL", "auth"))
    secrets = workspace.rows("SELECT hash FROM retired", "auth")
    if revive:
        assert (kept, secrets) == ({each: each for each in ("t1", "t2", "t4", "t5")}, [("r4",)])
    else:
        assert (kept, secrets) == ({"t2": "new", "t4": "t4", "t5": "t5"}, [("t2",)])


@pytest.mark.parametrize("revive", [False, True])
def test_members_that_were_revoked_since_stay_so_unless_asked_for(
    workspace: BackedUp, revive: bool
) -> None:
    """Anna is revoked; Bert has rotated his key twice."""
    names = ("anna", "bert")
    execute(
        workspace.datadir,
        "broker",
        "INSERT INTO mesh (id, slug, dedupe_mode, dedupe_retention_days, message_retention_days,"
        " concurrency, created_ms) VALUES ('m', 'lab', 'permanent', 1, 1, 'allow_concurrent', 1)",
        *(MEMBER.format(name, name) for name in names),
        *(f"INSERT INTO subscription VALUES ('m', 'topic', 'news', '{n}', 1)" for n in names),
        *map(DELIVERY.format, names),
    )
    made = workspace.back_up()
    revoked = "UPDATE member SET revoked_ms = 5, successor = {1} WHERE pubkey = '{0}'".format
    execute(
        workspace.datadir,
        "broker",
        revoked("anna", "NULL"),
        revoked("bert", "'bert2'"),
        MEMBER.format("bert2", "bert"),
        revoked("bert2", "'bert3'"),
        MEMBER.format("bert3", "bert"),
    )
    done = workspace.restore(made, revive=revive)
    assert noticed(done, "valid-again" if revive else "still-revoked", "broker") == {"member": 2}
    active = workspace.rows("SELECT pubkey FROM member WHERE revoked_ms IS NULL", "broker")
    readers = workspace.rows("SELECT subscriber FROM subscription", "broker")
    recipients = workspace.rows("SELECT recipient FROM delivery_queue", "broker")
    expected = [("anna",), ("bert",)] if revive else [("bert3",)]
    assert sorted(active) == sorted(readers) == sorted(recipients) == expected


@pytest.mark.parametrize("revive", [False, True])
def test_present_token_and_member_key_stay_unless_asked_for(
    workspace: BackedUp, revive: bool
) -> None:
    """Those of the backup may have been replaced because somebody else had them."""
    key_pair = workspace.datadir.dir / "identity" / "keypair.json"
    key_pair.parent.mkdir(mode=0o700)
    key_pair.write_text('{"ed25519_pubkey": "former"}')
    made, former = workspace.back_up(), workspace.datadir.read_token()
    key_pair.write_text('{"ed25519_pubkey": "new"}')
    workspace.datadir.token_file.write_text("rotated\n")
    plan = workspace.restore(made, revive=revive).plan
    kept = {".agentlip/token", ".agentlip/identity"}
    assert kept & set(plan.kept) == (set() if revive else kept)
    assert workspace.datadir.read_token() == (former if revive else "rotated")
    assert ("new" in key_pair.read_text()) is not revive


def test_sends_delivered_since_are_named_and_keep_their_ids(workspace: BackedUp) -> None:
    execute(workspace.datadir, "outbox", SEND.format("s1", "pending", "broker", "x"))
    made = workspace.back_up()
    execute(
        workspace.datadir, "outbox", SEND.format("s3", "pending", "broker", "x"),
        "UPDATE outbox SET status = 'done', delivered_at = 1",
        SEND.format("s2", "pending", "broker", "x"),
    )  # fmt: skip
    done = workspace.restore(made)
    assert noticed(done, "sent-again", "outbox") == {"send": 1}
    assert noticed(done, "lost", "outbox") == {"send": 1}
    assert noticed(done, "lost-delivered", "outbox") == {"send": 1}
    ids = workspace.rows("SELECT id, client_message_id, status FROM outbox", "outbox")
    assert ids == [("s1", "s1", "pending")]


@pytest.mark.parametrize(("store", "table"), [("inbox", "inbox"), ("courier", "log")])
def test_numbers_are_not_given_out_twice(workspace: BackedUp, store: str, table: str) -> None:
    set_highest = f"INSERT INTO sqlite_sequence VALUES ('{table}', {{}})".format
    execute(workspace.datadir, store, set_highest(30))
    made = workspace.back_up()
    forget = f"DELETE FROM sqlite_sequence WHERE name = '{table}'"
    execute(workspace.datadir, store, forget, set_highest(50))
    workspace.restore(made)
    number = f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'"
    assert workspace.rows(number, store) == [(50 + 2**32,)]


def test_store_whose_references_would_break_is_refused(workspace: BackedUp) -> None:
    made = workspace.back_up()
    execute(workspace.datadir, "hub", WEBHOOK.format("wh1"))
    execute(workspace.datadir, "outbox", SEND.format("s1", "pending", "webhook", "wh1"))
    before = content_of(workspace.datadir)
    with pytest.raises(RestoreRefused, match=r"outbox would refer to rows that hub lacks: wh1"):
        workspace.restore(made, stores=("hub",))
    assert content_of(workspace.datadir) == before
    workspace.restore(made, stores=("hub", "outbox"))
    assert workspace.rows("SELECT count(*) FROM outbox", "outbox") == [(0,)]


def test_entry_settled_since_the_backup_waits_again_and_is_named(workspace: BackedUp) -> None:
    entry = (
        "INSERT INTO x_entries (id, name, position, message_id, channel_id, reason, state,"
        " stored_at) VALUES ({0}, 'ada', {0}, 'm{0}', 'c', 'to', 'listed', 't')"
    )
    settle = "UPDATE x_entries SET state = 'acknowledged', settled_at = 't' WHERE id = 1"
    execute(workspace.datadir, "hub", entry.format(1))
    made = workspace.back_up()
    execute(workspace.datadir, "hub", settle, entry.format(2))
    done = workspace.restore(made)
    assert workspace.rows("SELECT id, state FROM x_entries", "hub") == [(1, "listed")]
    lost = noticed(done, "lost", "hub")
    assert lost["inbox entry"] == 1
    assert lost["acknowledgement of an inbox entry, which waits again"] == 1
