"""A hub that lacks events that were given out is refused, and no id is given out twice."""

import copy
import json
import re
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from appliance.kernel import event_ids
from appliance.kernel.store_declaration import NEWEST_EVENT
from appliance.shared.segment_chain import JUMP
from appliance.workspace import epochs, manifest
from appliance.workspace.datadir import BESIDE, DataDir
from tests.support.commands import agentlip, start_that_ends, succeed
from tests.support.damage import leaf_of
from tests.support.database_files import overwrite
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow
EXIT_CONFLICT = 2
FRAME_BYTES = 24 + 4096


class Killed(NamedTuple):
    """A hub that was killed after events, and its database before the last of them."""

    hub: ServedHub
    before: Path
    newest: int


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    hub = ServedHub(tmp_path_factory.mktemp("killed") / "w", "--no-limits")
    with hub.running(ending=signal.SIGKILL):
        topic = hub.channel_with_topic("general")[1]
        hub.stop()
        assert agentlip("backup", "create", cwd=hub.workspace).code == 0
        before = hub.workspace / "before.sqlite3"
        shutil.copy(hub.datadir.database("hub"), before)
        hub.start()
        for number in range(12):
            hub.send(topic, f"acknowledged {number}")
        newest = hub.head
    return Killed(hub, before, newest)


@pytest.fixture
def killed(killed_once: Killed, tmp_path: Path) -> Killed:
    shutil.copytree(killed_once.hub.workspace, tmp_path / "w", symlinks=True)
    hub = copy.copy(killed_once.hub)  # a new one would open the stores, and fold their logs
    hub.datadir, hub.log = DataDir(tmp_path / "w"), tmp_path / "w" / "server.log"
    return killed_once._replace(hub=hub, before=hub.workspace / "before.sqlite3")


def findings(hub: ServedHub) -> list[dict[str, str]]:
    answer = agentlip("doctor", "--json", "--run", "store.record,store.log", cwd=hub.workspace)
    return [each for check in json.loads(answer.out)["checks"] for each in check["findings"]]


def log_of(datadir: DataDir) -> Path:
    database = datadir.database("hub")
    return database.with_name(database.name + "-wal")


def remove_log(killed: Killed) -> None:
    log_of(killed.hub.datadir).unlink()


def remove_log_and_its_index(killed: Killed) -> None:
    for suffix in BESIDE:
        database = killed.hub.datadir.database("hub")
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def damage_log(killed: Killed) -> None:
    log = log_of(killed.hub.datadir)
    frames = log.stat().st_size // FRAME_BYTES
    overwrite(log, 32 + frames // 2 * FRAME_BYTES + 1000, b"flipped")


def put_older_file_back(killed: Killed) -> None:
    remove_log_and_its_index(killed)
    shutil.copy(killed.before, killed.hub.datadir.database("hub"))


@pytest.mark.parametrize(
    "lose", [remove_log, remove_log_and_its_index, damage_log, put_older_file_back]
)
def test_events_that_were_given_out_are_missed(
    lose: Callable[[Killed], None], killed: Killed
) -> None:
    hub, datadir = killed.hub, killed.hub.datadir
    before = event_ids.read(datadir.dir)
    assert before is not None
    assert before.number == killed.newest
    lose(killed)
    finding, *_ = findings(killed.hub)
    assert (finding["check"], finding["problem"]) == ("store.record", "behind")
    assert f"event {killed.newest} was given out" in finding["sentence"]
    kept = log_of(datadir).read_bytes() if lose is damage_log else b""

    refused = start_that_ends(hub.workspace)
    assert refused.code == EXIT_CONFLICT, refused
    assert f"event {killed.newest} was given out" in refused.err
    assert "agentlipd up --accept-loss hub" in refused.err
    assert not kept or log_of(datadir).read_bytes() == kept, "a refused start reads only"

    with hub.running("--accept-loss", "hub", ending=signal.SIGKILL):
        accepted = event_ids.read(datadir.dir)
        assert accepted is not None
        assert accepted.owner != before.owner
        hub.channel("later")
        assert hub.head == killed.newest + JUMP + 1
        (first, begun) = epochs.read(datadir)
        assert (first.epoch, begun.epoch) == (before.owner, accepted.owner)
        assert begun.highest_before == killed.newest
    assert not manifest.lost_stores(datadir, "unused")


def test_commits_behind_a_damaged_frame_are_counted_and_recovered(killed: Killed) -> None:
    damage_log(killed)
    behind, ignored = findings(killed.hub)
    assert behind["explained_by"] == "store.log:ignored-frames"
    assert re.match(r"\d+ frames .*, with [5-9] commits, are damaged", ignored["sentence"])
    done = agentlip("recover", "hub", "--yes", cwd=killed.hub.workspace)
    assert done.code == 1, "the content of one frame is not known"
    assert findings(killed.hub) == []
    sent = killed.hub.rows("SELECT count(*) FROM messages")
    assert sent == [(12,)]


def test_older_note_and_a_note_of_another_epoch_are_accepted(killed: Killed) -> None:
    """As after a power failure, and after a start that could not write the note."""
    put_older_file_back(killed)
    datadir = killed.hub.datadir
    note = datadir.dir / NEWEST_EVENT
    written = note.read_bytes()
    assert manifest.lost_stores(datadir, "unused")
    for content in (b"%020d" % 1 + written[20:], written[:21] + b"0" * 32 + b"\n", b"", b"\xff"):
        note.write_bytes(content)
        assert not manifest.lost_stores(datadir, "unused"), content


def test_restore_and_recovery_do_not_give_a_lost_id_out_again(killed: Killed) -> None:
    datadir = killed.hub.datadir
    database = datadir.database("hub")
    put_older_file_back(killed)
    leaf_of("events")(database)
    recovered = agentlip("recover", "hub", "--yes", cwd=killed.hub.workspace)
    assert f"event {killed.newest} was given out" in recovered.out, recovered
    with closing(sqlite3.connect(database)) as connection:
        assert event_ids.newest(connection) == killed.newest
    shutil.copy(killed.before, database)
    succeed("backup", "restore", "--latest", "--yes", cwd=killed.hub.workspace)
    assert epochs.read(datadir)[-1].first_event_id == killed.newest + JUMP + 1
    assert not manifest.lost_stores(datadir, "unused")
