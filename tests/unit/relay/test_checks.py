"""The relay's checks: broken, found; whole, nothing found."""

import pytest

from tests.doctor.workspace import WorkspaceFixture

AGENT = (
    "INSERT INTO agents (name, public_key, owner_email, version, status, address, created_ms,"
    " last_seen_ms) VALUES ('anna', 'k', 'a@x.org', '2.0', '{0}', '', {1}, {2})"
)
CODE = (
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 201)"
    " INSERT INTO verifications (agent, email, code, attempts, expires_ms)"
    " SELECT 'a' || i, 'a@x.org', x'00', 0, 1 FROM n"
)
FAR_MS = 9_000_000_000_000
GROUP = "INSERT INTO groups VALUES ('g', 'builders', 'anna', 0, 1, 50, 1, NULL)"
TOO_FEW = "INSERT INTO admins (agent, public_key, added_ms) VALUES ('ada', 'k', 1)"
BROKEN = {
    "admins": AGENT.format("active", FAR_MS, "NULL"),
    "pending": AGENT.format("pending", 1, "NULL"),
    "codes": CODE,
    "clock": AGENT.format("active", 1, FAR_MS),
}


@pytest.mark.parametrize("check", BROKEN)
def test_broken_relay_is_found(tmp_path, check):
    workspace = WorkspaceFixture(tmp_path)
    assert workspace.find(f"relay.{check}") == []
    workspace.execute(BROKEN[check], store="relay")
    (finding,) = workspace.find(f"relay.{check}")
    assert finding.subject == "relay"


def test_group_without_an_owner_is_found(tmp_path):
    workspace = WorkspaceFixture(tmp_path)
    workspace.execute(GROUP, store="relay")
    (finding,) = workspace.find("relay.groups")
    assert finding.problem == "groups"


def test_too_few_admins_are_found(tmp_path):
    workspace = WorkspaceFixture(tmp_path)
    workspace.data.settings_file.write_text("[relay]\napprovals = 2\n")
    workspace.execute(TOO_FEW, store="relay")
    (finding,) = workspace.find("relay.admins")
    assert finding.problem == "too-few"
    workspace.execute(TOO_FEW.replace("'ada', 'k'", "'bo', 'l'"), store="relay")
    assert workspace.find("relay.admins") == []
