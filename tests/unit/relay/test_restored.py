"""A restore of the relay: what it makes void, and what it carries forward."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from msgspec import convert

from appliance.kernel import meta
from appliance.network.group_log import GroupChange, verify_changes
from appliance.network.keys import AgentPublicKey, rotation_text
from appliance.relay import group_audit, key_log, queries
from appliance.relay.restored import adjust_store
from appliance.workspace.restoring import RestoreContext
from tests.support.relay import RelayFixture, key

ENDPOINT = {"endpoint": "https://anna.example.org/"}


class RestoredRelay:
    """A relay whose file goes back to an earlier one."""

    def __init__(self, folder):
        self.folder = folder
        self.relay = RelayFixture(folder)
        self.relay.add("anna", "bert")
        self.relay.connect("anna", "bert")
        self.relay.request("POST", "/verify/send", {"agentName": "cleo", "email": "c@x.org"})

    def back_up(self):
        self.relay.close()
        shutil.copy(self.relay.path, self.folder / "backup")
        clock = self.relay.clock
        self.relay = RelayFixture(self.folder)
        self.relay.clock = clock

    def restore(self, *, present=True, revive=False):
        self.relay.close()
        path, before = self.relay.path, self.folder / "before"
        shutil.copy(path, before)
        shutil.copy(self.folder / "backup", path)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            if present:
                connection.execute("ATTACH ? AS present", (str(before),))
            context = RestoreContext(
                connection, "relay", now_ms=self.relay.clock.now_ms() + 100_000,
                cut_ms=0, revive=revive, present=present, settings_file=path,
            )  # fmt: skip
            adjust_store(connection, context)
        self.relay = RelayFixture(self.folder)
        return {(notice.kind, notice.noun): notice.count for notice in context.notices}


@pytest.fixture
def workspace(tmp_path):
    restored_relay = RestoredRelay(tmp_path)
    restored_relay.back_up()
    yield restored_relay
    restored_relay.relay.close()


def test_agent_that_was_revoked_since_the_backup_stays_revoked(workspace):
    workspace.relay.as_admin("POST", "/registry/agents/bert/revoke")
    assert workspace.restore() == {("still-revoked", "agent"): 1, ("still-revoked", "contact"): 1}
    assert workspace.relay.request("GET", "/contacts", by="bert").status_code == 403
    assert workspace.relay.request("GET", "/contacts", by="anna").json == []


def test_agent_that_the_backup_lacks_stays_revoked(workspace):
    workspace.relay.add("dora", "emil")
    workspace.relay.as_admin("POST", "/registry/agents/dora/revoke")
    assert workspace.restore()["lost", "agent"] == 2
    agents = workspace.relay.relay.directory.agents
    assert agents["dora"].status == "revoked"
    assert "emil" not in agents


def test_operator_may_make_revoked_agents_valid_again(workspace):
    workspace.relay.as_admin("POST", "/registry/agents/bert/revoke")
    revived = {("valid-again", "agent"): 1, ("valid-again", "contact"): 1}
    assert workspace.restore(revive=True) == revived
    assert workspace.relay.request("GET", "/contacts", by="bert").status_code == 200


def test_replaced_key_stays_replaced(workspace):
    new = key("new")
    text = rotation_text("anna", key("anna").public, new.public)
    body = {
        "publicKey": str(new.public), "signature": key("anna").sign(text), "proof": new.sign(text),
    }  # fmt: skip
    path = "/registry/agents/anna/rotate-key"
    assert workspace.relay.request("POST", path, body, by="anna").status_code == 200
    workspace.restore()
    assert workspace.relay.request("GET", "/contacts", by="anna").status_code == 401
    assert workspace.relay.request("GET", "/contacts", by="anna", signer=new).status_code == 200


def test_removed_admin_stays_removed(workspace):
    from appliance.relay import writes

    workspace.relay.store.write(writes.remove_admin, "bo")
    workspace.restore()
    keys = workspace.relay.request("GET", "/admin/keys").json
    assert [entry["agent"] for entry in keys] == ["ada", "_relay"]


@pytest.mark.parametrize("remover", ["anna", "bert"])
def test_removed_contact_stays_removed(workspace, remover):
    other = {"anna": "bert", "bert": "anna"}[remover]
    assert workspace.relay.request("DELETE", f"/contacts/{other}", by=remover).status_code == 200
    workspace.relay.request("POST", "/contacts/request", {"to": other}, by=remover)
    assert workspace.restore() == {("still-revoked", "contact"): 1}
    for name in ("anna", "bert"):
        assert workspace.relay.request("GET", "/contacts", by=name).json == []


def test_contact_that_was_accepted_since_the_backup_stays_a_request(workspace):
    workspace.relay.add("dora")
    workspace.relay.request("POST", "/contacts/request", {"to": "dora"}, by="anna")
    workspace.back_up()
    workspace.relay.request("POST", "/contacts/anna/accept", by="dora")
    workspace.restore()
    (request,) = workspace.relay.request("GET", "/contacts/pending", by="dora").json
    assert request["from"] == "anna"


def test_operator_may_bring_removed_contacts_back(workspace):
    workspace.relay.request("DELETE", "/contacts/bert", by="anna")
    assert workspace.restore(revive=True) == {("valid-again", "contact"): 1}
    assert len(workspace.relay.request("GET", "/contacts", by="anna").json) == 1


def test_agents_see_the_contacts_of_a_restore_without_the_former_store(workspace):
    workspace.relay.request("DELETE", "/contacts/bert", by="anna")
    workspace.restore(present=False)
    workspace.relay.clock.pass_seconds(200)
    for name, other in (("anna", "bert"), ("bert", "anna")):
        events = workspace.relay.request("GET", "/contacts/events", by=name).json["events"]
        assert (events[-1]["agent"], events[-1]["event"]) == (other, "accepted")
        assert events[-1]["at"] > events[0]["at"]


def test_codes_are_void(workspace):
    workspace.restore()
    assert workspace.relay.rows("SELECT * FROM verifications") == []


@pytest.mark.parametrize("present", [True, False])
def test_request_from_before_the_restore_is_refused(workspace, present):
    at_ms = workspace.relay.clock.now_ms() + 1_000
    given = ("PUT", "/presence", ENDPOINT)
    assert workspace.relay.request(*given, by="anna", at_ms=at_ms).status_code == 200
    workspace.restore(present=present)
    refused = workspace.relay.request(*given, by="anna", at_ms=at_ms)
    assert refused.json["code"] == ("SIGNATURE_USED" if present else "STALE_SIGNATURE")
    later_ms = at_ms + 200_000
    assert workspace.relay.request(*given, by="anna", at_ms=later_ms).status_code == 200


def replace_relay_key(tx):
    tx.execute(meta.SET, (queries.RELAY_KEY, f"1 {key('relay').pkcs8()}"))


def test_relay_keeps_its_own_key_although_the_backup_has_another(workspace):
    workspace.relay.store.write(replace_relay_key)
    before = workspace.relay.request("GET", "/admin/keys").json
    workspace.restore()
    assert workspace.relay.request("GET", "/admin/keys").json == before
    assert before[-1]["agent"] == "_relay"


def test_key_log_goes_on_after_a_restore(workspace):
    workspace.relay.add("cleo")
    before = workspace.relay.store.read(key_log.head)
    workspace.restore()
    read = workspace.relay.store.read
    assert read(key_log.head).number == before.number + 1  # cleo is lost
    assert [row.event for row in read(key_log.entries, before.number - 1, 9)] == [
        "registered", "lost",
    ]  # fmt: skip
    assert read(key_log.find_problems) == []


def test_key_log_names_the_agent_that_comes_back_by_a_restore(workspace):
    workspace.relay.as_admin("POST", "/registry/agents/anna/revoke")
    workspace.restore(revive=True)
    rows = workspace.relay.store.read(key_log.entries, 0, 9)
    assert [(row.agent, row.event) for row in rows[-2:]] == [("anna", "revoked"), ("anna", "known")]
    assert workspace.relay.store.read(key_log.find_problems) == []


def test_backup_from_before_the_key_log_is_restored(workspace):
    with closing(sqlite3.connect(workspace.folder / "backup")) as connection, connection:
        connection.execute("DROP TABLE key_log")
        connection.execute("DROP TABLE recoveries")
        connection.execute("DELETE FROM x_migrations WHERE number = 3")
    workspace.relay.close()
    path, context = workspace.folder / "backup", None
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ATTACH ? AS present", (str(workspace.relay.path),))
        context = RestoreContext(
            connection, "relay", now_ms=1, cut_ms=0, revive=False, present=True, settings_file=path
        )
        adjust_store(connection, context)
    assert context.notices == []
    workspace.relay = RelayFixture(workspace.folder)


# -- groups ------------------------------------------------------------------------------


@pytest.fixture
def groups(tmp_path):
    """A relay with a backup, in which anna's group has bert."""
    groups = Groups(tmp_path)
    groups.back_up()
    yield groups
    groups.relay.close()


class Groups(RestoredRelay):
    """`head`: the newest change that a member has seen."""

    def __init__(self, folder):
        super().__init__(folder)
        made = self.call("anna", "POST", "/groups", {"name": "builders"})
        self.group_id = made["groupId"]
        self.path = f"/groups/{self.group_id}"
        self.invite("anna", "bert")

    def call(self, by, method, path, body=None):
        reply = self.relay.request(method, path, body, by=by)
        assert reply.status_code < 300, reply.json
        return reply.json

    def invite(self, by, name):
        self.call(by, "POST", f"{self.path}/invite", {"agent": name})
        self.call(name, "POST", f"{self.path}/accept")

    def add(self, name):
        """A member since the backup."""
        self.relay.add(name)
        self.relay.connect("anna", name)
        self.invite("anna", name)

    def read_log(self, by="anna"):
        return convert(self.call(by, "GET", f"{self.path}/changes"), list[GroupChange])

    def roles(self, by="anna"):
        return {row["agent"]: row["role"] for row in self.call(by, "GET", f"{self.path}/members")}

    def check_continues(self, before):
        """The log after the restore has all changes before, then signed ones."""
        log = self.read_log("bert" if "bert" in self.roles("anna") else "anna")
        assert log[: len(before)] == before
        own = self.relay.request("GET", "/admin/keys").json[-1]["adminPublicKey"]
        verify_changes(self.group_id, log, "", AgentPublicKey.of(own))
        assert self.relay.store.read(group_audit.find_problems) == []


@pytest.mark.parametrize("revive", [False, True])
def test_group_works_after_a_restore_and_its_log_goes_on(groups, revive):
    groups.call("anna", "DELETE", f"{groups.path}/members/bert")
    before = groups.read_log()
    groups.restore(revive=revive)
    assert groups.roles() == {"anna": "owner"}
    groups.invite("anna", "bert")
    assert groups.roles("bert") == {"anna": "owner", "bert": "member"}
    groups.check_continues(before)


def test_member_that_the_restore_removes_leaves_its_groups(groups):
    """Its name can be registered by somebody else."""
    groups.add("cleo")
    groups.call("anna", "POST", f"{groups.path}/transfer", {"newOwner": "cleo"})
    before = groups.read_log()
    groups.restore()
    assert groups.roles() == {"anna": "owner", "bert": "member"}
    groups.check_continues(before)
    groups.relay.add("cleo")
    assert groups.call("cleo", "GET", "/groups") == []
