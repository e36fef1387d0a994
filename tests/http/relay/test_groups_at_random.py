"""Groups driven at random: the relay's members and its log agree with a model."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from appliance.network.group_log import verify_changes
from tests.http.relay.test_groups import Groups
from tests.support.relay import RelayFixture

AGENTS = ("olga", "adam", "mia")
OWNER, ADMIN, MEMBER, INVITED = "owner", "admin", "member", "invited"
CALLS = ("invite", "accept", "decline", "leave", "transfer", "remove")


class GroupMachine(RuleBasedStateMachine):
    """Any agent calls anything at any time. `roles`: the model, with invited agents."""

    def __init__(self):
        super().__init__()
        self.folder = TemporaryDirectory()
        self.groups = Groups(RelayFixture(Path(self.folder.name) / "relay"))

    @initialize()
    def make(self):
        made = self.groups.succeed("olga", "POST", "/groups", {"name": "x"})
        self.group_id, self.roles = made["groupId"], {"olga": OWNER}

    @rule(by=st.sampled_from(AGENTS), other=st.sampled_from(AGENTS), call=st.sampled_from(CALLS))
    def act(self, by, other, call):
        self.groups.relay.clock.pass_seconds(3600)  # limits are not tested here
        path = f"/groups/{self.group_id}"
        method, path, body = {
            "invite": ("POST", f"{path}/invite", {"agent": other}),
            "transfer": ("POST", f"{path}/transfer", {"newOwner": other}),
            "remove": ("DELETE", f"{path}/members/{other}", None),
        }.get(call, ("POST", f"{path}/{call}", None))
        after = self.after(by, other, call)
        status, _ = self.groups.call(by, method, path, body)
        assert (status == 200) == (after is not None), (by, other, call, status, self.roles)
        self.roles = self.roles if after is None else after

    def after(self, by, other, call):
        """The model after an allowed call; None if the call is refused."""
        own, role, roles = self.roles.get(by), self.roles.get(other), dict(self.roles)
        if call == "invite" and own in (OWNER, ADMIN) and role is None and by != other:
            roles[other] = INVITED
        elif call == "accept" and own == INVITED:
            roles[by] = MEMBER
        elif (call == "decline" and own == INVITED) or (call == "leave" and own in (ADMIN, MEMBER)):
            del roles[by]
        elif call == "transfer" and own == OWNER and role in (OWNER, ADMIN, MEMBER):
            roles |= {by: ADMIN, other: OWNER}
        elif call == "remove" and (
            (own == OWNER and role in (ADMIN, MEMBER, INVITED))
            or (own == ADMIN and role in (MEMBER, INVITED))
        ):
            del roles[other]
        else:
            return None
        return roles

    @invariant()
    def members_and_log_follow_the_model(self):
        if not hasattr(self, "roles"):
            return
        owner = next(name for name, role in self.roles.items() if role == OWNER)
        path = f"/groups/{self.group_id}"
        rows = self.groups.succeed(owner, "GET", f"{path}/members")
        members = {name: role for name, role in self.roles.items() if role != INVITED}
        assert {row["agent"]: row["role"] for row in rows} == members
        changes = self.groups.changes(path, owner)
        verify_changes(self.group_id, changes, "", self.groups.relay_key())
        logged = set()
        for change in changes:
            if change.action == "joined":
                logged.add(change.agent)
            elif change.action in ("left", "removed"):
                logged.discard(change.agent)
        assert logged == members.keys()

    def teardown(self):
        self.groups.relay.close()
        self.folder.cleanup()


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=10, stateful_step_count=25, deadline=None)
