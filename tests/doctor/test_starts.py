"""Whatever makes `agentlipd up` refuse is an error of the doctor."""

import json
import os
from pathlib import Path

import pytest

from doctor.run import examine, select
from tests.doctor import breakages as by
from tests.doctor.breakages import Break, UsedWorkspace, put, remove, sql, write
from tests.doctor.test_breakages import serious
from tests.doctor.workspace import WorkspaceFixture
from tests.support.commands import agentlip, agentlipd

pytestmark = pytest.mark.slow
KEYPAIR = ".agentlip/identity/keypair.json"


def other_key(workspace: WorkspaceFixture) -> None:
    path = workspace.data.workspace / KEYPAIR
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"ed25519_pubkey": "ab" * 32}))


REFUSED = {
    "member key is missing": remove(KEYPAIR),
    "member key has parts of two keys": other_key,
    "member key is a FIFO": put(KEYPAIR, os.mkfifo),
    "unfinished member key is a folder": put(".agentlip/identity/keypair-next.json", Path.mkdir),
    "migration is not recorded": sql(
        "outbox", "DELETE FROM x_migrations WHERE number = (SELECT max(number) FROM x_migrations)"
    ),
    "store is a FIFO": put(".agentlip/db.sqlite3", os.mkfifo),
    "token is empty": write(".agentlip/token", ""),
    "store is missing": remove(".agentlip/inbox.sqlite3"),
}
STARTED = {
    "nothing": lambda _workspace: None,
    "lock was left": write(".agentlip/locks/writer.lock", '{"pid": 999999999}'),
    "server.json was left": by.server_file(pid=999_999_999),
}


@pytest.mark.parametrize("name", [*REFUSED, *STARTED])
def test_setting_that_start_refuses_is_an_error(used: UsedWorkspace, name: str) -> None:
    damage: Break = {**REFUSED, **STARTED}[name]
    damage(used)
    with used.context() as context:
        outcomes = examine(context, select([], False))
    findings = serious([finding for outcome in outcomes for finding in outcome.findings])
    errors = [finding for finding in findings if finding.severity.rank > 1]
    up = agentlipd("up", cwd=used.data.workspace)
    agentlipd("down", cwd=used.data.workspace)
    assert (up.code != 0) == (name in REFUSED), up
    if "member key" in name:
        show = agentlip("identity", "show", cwd=used.data.workspace)
        (hint,) = [line for line in show.err.splitlines() if line.startswith("Hint: ")]
        assert hint in up.err, (show, up)
    assert bool(errors) == (name in REFUSED), (findings, up)
