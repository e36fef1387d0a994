"""Groups at the relay: every call by every role, limits, the signed log, and what ends with an
agent."""

import json

import pytest
from msgspec import convert
from msgspec.structs import replace

from appliance.kernel.clock import DAY_MS, iso
from appliance.network.group_log import GroupChange, GroupLogRefused, verify_changes
from appliance.network.keys import AgentPublicKey
from appliance.network.request import request_headers
from appliance.relay import group_audit, group_queries, group_writes, limits
from tests.support.relay import RelayFixture, key

AGENTS = ("olga", "adam", "mia", "ivan", "paul", "zoe")  # zoe is a contact, and outside
ROLES = {
    "owner": "olga", "admin": "adam", "member": "mia", "invited": "ivan", "removed": "paul",
    "outside": "zoe",
}  # fmt: skip
NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LIMITS", dict.fromkeys(limits.LIMITS, (10**6, 60_000)))
        patch.setattr(group_queries, "GROUPS_MAX", 10**6)
        fixture = Groups(RelayFixture(tmp_path_factory.mktemp("relay") / "relay"))
        yield fixture
        fixture.relay.close()


class Groups:
    """Agents of whom each is the contact of each."""

    def __init__(self, relay):
        self.relay = relay
        relay.add(*AGENTS)
        for number, name in enumerate(AGENTS):
            for other in AGENTS[:number]:
                relay.connect(name, other)

    def call(self, by, method, path, body=None):
        reply = self.relay.request(method, path, body, by=by)
        return reply.status_code, reply.json

    def succeed(self, by, method, path, body=None):
        status, answer = self.call(by, method, path, body)
        assert status in (200, 201), answer
        return answer

    def make(self, **settings):
        """A group with one agent in each of ROLES."""
        body = {"name": "builders", "settings": settings}
        path = "/groups/" + self.succeed("adam", "POST", "/groups", body)["groupId"]
        for name in ("olga", "mia", "paul"):
            self.join(path, "adam", name)
        self.succeed("adam", "POST", f"{path}/transfer", {"newOwner": "olga"})
        self.succeed("olga", "DELETE", f"{path}/members/paul")
        self.succeed("olga", "POST", f"{path}/invite", {"agent": "ivan", "greeting": "hi"})
        return path

    def join(self, path, by, name):
        self.succeed(by, "POST", f"{path}/invite", {"agent": name})
        self.succeed(name, "POST", f"{path}/accept")

    def changes(self, path, by="olga", since=""):
        rows = self.succeed(by, "GET", f"{path}/changes" + (f"?since={since}" if since else ""))
        return convert(rows, list[GroupChange])

    def relay_key(self):
        rows = self.succeed(None, "GET", "/admin/keys")
        return AgentPublicKey.of(next(r["adminPublicKey"] for r in rows if r["agent"] == "_relay"))


ORDER = tuple(ROLES)
MEMBER, ROLE = "NOT_A_MEMBER", "GROUP_ROLE_MISSING"
GONE = "NOT_FOUND"
# Call, body, and for each role in ROLES the status or the refusal's code.
TABLE = [
    ("GET", "", None, (200, 200, 200, MEMBER, MEMBER, MEMBER)),
    ("GET", "/members", None, (200, 200, 200, MEMBER, MEMBER, MEMBER)),
    ("GET", "/changes", None, (200, 200, 200, 200, 200, MEMBER)),
    ("GET", "/changes?since=2026-01-01T00:00:00.000Z", None, (200, 200, 200, 200, 200, MEMBER)),
    ("GET", "/changes?since=yesterday", None, ("INVALID_INPUT",) * 6),
    ("POST", "/invite", {"agent": "zoe"}, (200, 200, ROLE, MEMBER, MEMBER, MEMBER)),
    ("POST", "/invite", {"agent": "paul"}, (200, 200, ROLE, MEMBER, MEMBER, MEMBER)),
    ("POST", "/invite", {"agent": "mia"},
     ("ALREADY_EXISTS", "ALREADY_EXISTS", ROLE, MEMBER, MEMBER, MEMBER)),
    ("POST", "/invite", {"agent": "ivan"},
     ("ALREADY_EXISTS", "ALREADY_EXISTS", ROLE, MEMBER, MEMBER, MEMBER)),
    ("POST", "/invite", {"agent": "nobody"},
     ("NOT_CONTACTS", "NOT_CONTACTS", ROLE, MEMBER, MEMBER, MEMBER)),
    ("POST", "/invite", {"agent": "Zoe"}, ("BAD_AGENT_NAME",) * 6),
    ("POST", "/invite", {"agent": "zoe", "greeting": "x" * 501}, ("INVALID_INPUT",) * 6),
    ("POST", "/accept", None, (GONE, GONE, GONE, 200, GONE, GONE)),
    ("POST", "/decline", None, (GONE, GONE, GONE, 200, GONE, GONE)),
    ("POST", "/leave", None, ("OWNER_STAYS", 200, 200, GONE, GONE, GONE)),
    ("POST", "/transfer", {"newOwner": "mia"}, (200, ROLE, ROLE, MEMBER, MEMBER, MEMBER)),
    ("POST", "/transfer", {"newOwner": "ivan"}, (GONE, ROLE, ROLE, MEMBER, MEMBER, MEMBER)),
    ("POST", "/transfer", {}, ("INVALID_INPUT",) * 6),
    ("DELETE", "/members/mia", None, (200, 200, ROLE, MEMBER, MEMBER, MEMBER)),
    ("DELETE", "/members/ivan", None, (200, 200, ROLE, MEMBER, MEMBER, MEMBER)),
    ("DELETE", "/members/adam", None, (200, ROLE, ROLE, MEMBER, MEMBER, MEMBER)),
    ("DELETE", "/members/olga", None, (ROLE, ROLE, ROLE, MEMBER, MEMBER, MEMBER)),
    ("DELETE", "/members/paul", None, (GONE, GONE, ROLE, MEMBER, MEMBER, MEMBER)),
    ("DELETE", "", None, (200, "OWNER_PRESENT", ROLE, MEMBER, MEMBER, MEMBER)),
]  # fmt: skip
STATUSES = {
    "INVALID_INPUT": 400, "BAD_AGENT_NAME": 400, "OWNER_STAYS": 400, MEMBER: 403, ROLE: 403,
    "NOT_CONTACTS": 403, "OWNER_PRESENT": 403, GONE: 404, "ALREADY_EXISTS": 409,
}  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_every_call_by_each_role_has_its_status(groups, role):
    for method, path, body, outcomes in TABLE:
        wanted = outcomes[ORDER.index(role)]
        status, answer = groups.call(ROLES[role], method, groups.make() + path, body)
        code = answer.get("code") if isinstance(answer, dict) else None
        if isinstance(wanted, int):
            assert status == wanted, (method, path, answer)
        else:
            assert (status, code) == (STATUSES[wanted], wanted), (method, path, answer)
            assert answer["ok"] is False


@pytest.mark.parametrize("role", ROLES)
def test_calls_to_an_unknown_or_deleted_group_are_404(groups, role):
    deleted = groups.make()
    groups.succeed("olga", "DELETE", deleted)
    for path in (f"/groups/{NOBODY}", deleted):
        for method, rest, body, outcomes in TABLE:
            if method == "GET" or outcomes[0] in ("INVALID_INPUT", "BAD_AGENT_NAME"):
                continue
            status, answer = groups.call(ROLES[role], method, path + rest, body)
            assert (status, answer["code"]) == (404, "NOT_FOUND"), (method, rest)
    assert groups.call(ROLES[role], "GET", f"/groups/{NOBODY}")[0] == 404


def test_bodies_have_the_fields_of_the_contract(groups):
    made = groups.succeed("olga", "POST", "/groups", {"name": "x", "settings": {"maxMembers": 99}})
    assert {key: made[key] for key in ("name", "owner", "settings", "ok")} == {
        "name": "x", "owner": "olga", "ok": True,
        "settings": {"membersCanInvite": False, "membersCanSend": True, "maxMembers": 50},
    }  # fmt: skip
    path = f"/groups/{made['groupId']}"
    groups.succeed("olga", "POST", f"{path}/invite", {"agent": "zoe", "greeting": "hello"})
    (invitation,) = (
        row
        for row in groups.succeed("zoe", "GET", "/groups/invitations")
        if row["groupId"] == made["groupId"]
    )
    assert invitation.pop("createdAt")
    assert invitation == {
        "groupId": made["groupId"], "groupName": "x", "invitedBy": "olga", "greeting": "hello",
    }  # fmt: skip
    assert groups.succeed("zoe", "POST", f"{path}/accept") == {"ok": True, "status": "accepted"}
    members = groups.succeed("zoe", "GET", f"{path}/members")
    assert [(row["agent"], row["role"]) for row in members] == [
        ("olga", "owner"),
        ("zoe", "member"),
    ]
    assert all(row["joinedAt"] for row in members)
    listed = next(
        row for row in groups.succeed("zoe", "GET", "/groups") if row["groupId"] == made["groupId"]
    )
    assert (listed["role"], listed["memberCount"], listed["status"]) == ("member", 2, "active")
    changes = groups.changes(path, "zoe")
    assert [(each.agent, each.action, each.by) for each in changes] == [
        ("olga", "joined", "olga"), ("zoe", "invited", "olga"), ("zoe", "joined", "zoe"),
    ]  # fmt: skip
    assert listed["head"] == changes[-1].hash


def test_members_may_invite_only_if_the_owner_chose_so(groups):
    path = groups.make(membersCanInvite=True)
    groups.succeed("mia", "POST", f"{path}/invite", {"agent": "zoe"})


def test_admin_is_removed_only_by_the_owner(groups):
    path = groups.make()
    groups.succeed("olga", "POST", f"{path}/transfer", {"newOwner": "mia"})
    assert groups.call("adam", "DELETE", f"{path}/members/olga")[1]["code"] == ROLE
    groups.succeed("mia", "DELETE", f"{path}/members/olga")


def test_admin_deletes_a_group_whose_owner_is_unseen_for_a_week(groups):
    path, relay = groups.make(), groups.relay
    body = {"endpoint": "https://olga.example.org/network/inbox"}
    relay.request("PUT", "/presence", body, by="olga")
    relay.clock.pass_seconds(7 * DAY_MS / 1000)
    assert groups.call("adam", "DELETE", path)[1]["code"] == "OWNER_PRESENT"
    relay.clock.pass_seconds(1)
    assert groups.call("mia", "DELETE", path)[1]["code"] == ROLE
    assert groups.succeed("adam", "DELETE", path)["status"] == "dissolved"
    assert groups.call("olga", "GET", f"{path}/members")[1]["code"] == MEMBER
    assert groups.changes(path, "mia")[-1].action == "dissolved"


def test_group_has_at_most_fifty_members(groups, monkeypatch):
    path = (
        "/groups/"
        + groups.succeed("olga", "POST", "/groups", {"name": "x", "settings": {"maxMembers": 2}})[
            "groupId"
        ]
    )
    for name in ("adam", "mia"):
        groups.succeed("olga", "POST", f"{path}/invite", {"agent": name})
    groups.succeed("adam", "POST", f"{path}/accept")
    assert groups.call("mia", "POST", f"{path}/accept")[1]["code"] == "GROUP_FULL"
    status, answer = groups.call("olga", "POST", f"{path}/invite", {"agent": "zoe"})
    assert (status, answer["code"]) == (400, "GROUP_FULL")


def test_agents_have_at_most_a_hundred_groups_and_invitations(groups, monkeypatch):
    path = groups.make()
    monkeypatch.setattr(group_queries, "GROUPS_MAX", 0)
    for by, call, body in (("olga", "/groups", {"name": "x"}),
                           ("olga", f"{path}/invite", {"agent": "zoe"}),
                           ("ivan", f"{path}/accept", None)):  # fmt: skip
        status, answer = groups.call(by, "POST", call, body)
        assert (status, answer["code"]) == (400, "TOO_MANY_GROUPS")


@pytest.mark.parametrize(("limit", "call"), [("groups", ""), ("invitations", f"/{NOBODY}/invite")])
def test_creations_and_invitations_are_limited_by_the_hour(groups, monkeypatch, limit, call):
    monkeypatch.setitem(limits.LIMITS, limit, (0, 1))
    body = {"name": "x", "agent": "zoe"}
    status, answer = groups.call("olga", "POST", f"/groups{call}", body)
    assert (status, answer["code"]) == (429, "RATE_LIMITED")


def test_original_clients_signature_without_the_query_is_accepted(groups):
    """The first relay verified the path alone; the first client signs the path with the query."""
    path, relay = groups.make(), groups.relay
    for number, signed in enumerate((f"{path}/changes", f"{path}/changes?since={iso(0)}")):
        headers = request_headers(
            key("mia"), "mia", "GET", signed, b"", relay.clock.now_ms() + number
        )
        assert relay.send("GET", f"{path}/changes?since={iso(0)}", b"", headers).status_code == 200


# -- the log -------------------------------------------------------------------------------


def test_log_is_one_chain_that_the_relay_signed(groups):
    path = groups.make()
    changes, group_id = groups.changes(path), path.rpartition("/")[2]
    assert [each.number for each in changes] == list(range(1, len(changes) + 1))
    assert len({each.timestamp for each in changes}) == len(changes)
    signer = groups.relay_key()
    assert verify_changes(group_id, changes, "", signer) == changes[-1].hash
    later = groups.changes(path, since=changes[3].timestamp)
    assert later == changes[4:]
    assert verify_changes(group_id, later, changes[3].hash, signer) == changes[-1].hash


@pytest.mark.parametrize("lie", ["drop", "swap", "change", "other group", "other key"])
def test_log_with_any_lie_is_refused(groups, lie):
    path = groups.make()
    changes, group_id = groups.changes(path), path.rpartition("/")[2]
    signer = groups.relay_key()
    if lie == "drop":
        del changes[2]
    elif lie == "swap":
        changes[2], changes[3] = changes[3], changes[2]
    elif lie == "change":
        changes[2] = replace(changes[2], agent="mallory")
    elif lie == "other group":
        group_id = NOBODY
    else:
        signer = AgentPublicKey.of(groups.succeed("olga", "GET", "/contacts")[0]["publicKey"])
    with pytest.raises(GroupLogRefused):
        verify_changes(group_id, changes, "", signer)


AUDIT = {
    "UPDATE group_changes SET agent = 'zoe' WHERE number = 2": "the log is not one signed chain",
    "DELETE FROM group_changes WHERE number = 2": "the log is not one signed chain",
    "UPDATE group_changes SET signature = 'AAAA'": "the log is not one signed chain",
    "UPDATE group_members SET role = 'member'": "the owner is not the one member with this role",
    "UPDATE groups SET max_members = 1": "has more members than its limit",
    "UPDATE group_members SET status = 'active' WHERE agent = 'paul'":
        "a member has left, by the log",
}  # fmt: skip


def _execute(tx, sql):
    tx.execute(sql)


@pytest.mark.parametrize("change", AUDIT)
def test_audit_finds_change_made_outside_the_relay(tmp_path, change):
    groups = Groups(RelayFixture(tmp_path))
    group_id = groups.make().rpartition("/")[2]
    assert groups.relay.store.read(group_audit.find_problems) == []
    groups.relay.store.write(_execute, change)
    problems = groups.relay.store.read(group_audit.find_problems)
    assert problems == [f"group {group_id}: {AUDIT[change]}"]
    groups.relay.close()


def test_former_member_reads_changes_only_up_to_its_end(groups):
    path = groups.make()
    groups.succeed("olga", "DELETE", f"{path}/members/mia")
    groups.join(path, "olga", "zoe")
    last = groups.changes(path, "mia")[-1]
    assert (last.agent, last.action, last.by) == ("mia", "removed", "olga")
    assert groups.changes(path)[-1].agent == "zoe"


def test_oldest_changes_are_deleted_beyond_the_limit(groups, monkeypatch):
    path = groups.make()
    monkeypatch.setattr(group_writes, "CHANGES_MAX", 3)
    groups.succeed("olga", "DELETE", f"{path}/members/mia")
    assert len(groups.changes(path)) == 3


# -- what ends with an agent ---------------------------------------------------------------


def test_revoked_owner_is_succeeded_by_admin_then_member_then_nobody(groups):
    relay = groups.relay
    relay.add("tom", "una", "vic")
    for pair in (("tom", "una"), ("tom", "vic"), ("una", "vic")):
        relay.connect(*pair)
    path = "/groups/" + groups.succeed("vic", "POST", "/groups", {"name": "x"})["groupId"]
    for name in ("una", "tom"):
        groups.join(path, "vic", name)
    groups.succeed("vic", "POST", f"{path}/transfer", {"newOwner": "tom"})
    for gone, members in (("tom", [("vic", "owner"), ("una", "member")]),
                          ("vic", [("una", "owner")]), ("una", None)):  # fmt: skip
        assert relay.as_admin("POST", f"/registry/agents/{gone}/revoke").status_code == 200
        if members:
            rows = groups.succeed(members[0][0], "GET", f"{path}/members")
            assert [(row["agent"], row["role"]) for row in rows] == members
    group_id = path.rpartition("/")[2]
    rows = relay.rows(f"SELECT action FROM group_changes WHERE group_id = '{group_id}'")
    assert [action for (action,) in rows][-1] == "dissolved"


def test_deleted_group_is_kept_for_thirty_days(groups):
    path, relay = groups.make(), groups.relay
    groups.succeed("olga", "DELETE", path)
    relay.pruner.run_once(relay.clock.now_ms())
    assert groups.changes(path)
    relay.clock.pass_seconds(31 * DAY_MS / 1000)
    assert relay.pruner.run_once(relay.clock.now_ms())["groups"] >= 1
    assert groups.call("olga", "GET", f"{path}/changes")[0] == 404
    orphans = "SELECT * FROM group_changes WHERE group_id NOT IN (SELECT id FROM groups)"
    assert relay.rows(orphans) == []


def test_greetings_and_names_stay_out_of_the_process_log(groups):
    body = {"name": "secret name"}
    path = "/groups/" + groups.succeed("olga", "POST", "/groups", body)["groupId"]
    groups.succeed("olga", "POST", f"{path}/invite", {"agent": "zoe", "greeting": "secret text"})
    log = groups.relay.lines.getvalue()
    assert b"group.invite" in log
    assert b"secret" not in log
    assert json.loads(log.splitlines()[-1])["group"] == path.rpartition("/")[2]
