"""A relay that is killed while it changes a group: what it confirmed stays, as one whole log."""

import multiprocessing
from pathlib import Path

import pytest

from appliance.network.group_log import verify_changes
from tests.http.relay.test_groups import Groups
from tests.support.relay import RelayFixture

SECONDS_MAX = 60
KILLED_AFTER = (1, 4, 9)  # confirmed calls


class Opened(Groups):
    """Groups of a relay whose agents exist."""

    def __init__(self, folder):
        self.relay = RelayFixture(Path(folder))


def change_until_killed(folder, path, ticks, confirmed):
    groups = Opened(folder)
    groups.relay.ticks = ticks
    while True:
        for by, method, call, body in (("olga", "POST", "/invite", {"agent": "mia"}),
                                       ("mia", "POST", "/accept", None),
                                       ("olga", "DELETE", "/members/mia", None)):  # fmt: skip
            groups.relay.clock.pass_seconds(60)
            groups.succeed(by, method, path + call, body)
            confirmed.send(call)


@pytest.mark.parametrize("count", KILLED_AFTER)
def test_relay_killed_during_changes_keeps_each_confirmed_one(tmp_path, count):
    groups = Groups(RelayFixture(tmp_path))
    path = "/groups/" + groups.succeed("olga", "POST", "/groups", {"name": "x"})["groupId"]
    groups.relay.close()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=change_until_killed, args=(tmp_path, path, 1000, theirs))
    child.start()
    theirs.close()
    calls = []
    while len(calls) < count:
        assert ours.poll(SECONDS_MAX), "the relay makes no changes"
        calls.append(ours.recv())
    child.kill()
    child.join(SECONDS_MAX)
    try:
        while True:
            calls.append(ours.recv())
    except EOFError:
        pass
    groups = Opened(tmp_path)
    changes = groups.changes(path)
    verify_changes(path.rpartition("/")[2], changes, "", groups.relay_key())
    assert len(changes) - 1 in (len(calls), len(calls) + 1)  # one may not have been confirmed
    is_member = changes[-1].action == "joined"
    members = [row["agent"] for row in groups.succeed("olga", "GET", f"{path}/members")]
    assert ("mia" in members) == (is_member and changes[-1].agent == "mia")
    groups.relay.close()
