"""A restore of the worker bus: claims end, numbers and fences stay above those given out."""

from contextlib import closing

from appliance.busfile import claims, messages
from appliance.busfile.file import BusPaths, connect, transaction
from appliance.busfile.messages import NewMessage
from tests.support.restored_workspace import BackedUp

NOW = 1_000


def publish(connection, id_):
    with transaction(connection):
        message = NewMessage(from_agent="ada", type="note", id=id_)
        return messages.publish(connection, NOW, message).seq


def claim(connection, agent):
    with transaction(connection):
        return claims.claim(connection, NOW, "task", agent)


def test_claims_end_and_numbers_and_fences_only_rise(tmp_path):
    workspace = BackedUp(tmp_path)
    paths = BusPaths(workspace.datadir.workspace)
    with closing(connect(paths)) as connection:
        publish(connection, "kept")
        claim(connection, "ada")
    made = workspace.back_up()
    with closing(connect(paths)) as connection:
        seen = publish(connection, "lost")
        with transaction(connection):
            claims.release(connection, "task", "ada")
        held = claim(connection, "bob")
    notices = workspace.restore(made).plan.notices
    assert [(each.kind, each.count) for each in notices if each.store == "bus"] == [("lost", 1)]
    with closing(connect(paths)) as connection:
        assert claims.all_claims(connection) == []
        assert [message.id for message in messages.newest(connection, 9)] == ["kept"]
        assert publish(connection, "new") > seen
        assert claim(connection, "ada").fence > held.fence
