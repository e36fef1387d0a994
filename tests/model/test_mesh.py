"""Outbox, broker and inbox together, on real files: accepts, drains, deliveries and redrives in any
order; faults and deaths before and after any commit; lost answers, lost acks, cut links.

Every accepted send is in the receiver's inbox once, or visibly pending, `dead` or `aborted`.
"""

import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.outbox import wire
from tests.support.mesh_processes import (
    DESTINATIONS,
    LINES,
    MOMENTS,
    NOWHERE,
    STEPS,
    STORES,
    MeshFixture,
)

pytestmark = pytest.mark.slow

KEYS = st.sampled_from([f"k{number}" for number in range(6)])
TEXTS = st.sampled_from(["red", "green", "blue"])
TO = st.sampled_from([*DESTINATIONS, *DESTINATIONS, NOWHERE])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A mesh with its members, closed: what every test begins from."""
    return new_mesh(tmp_path_factory.mktemp("made"))


def new_mesh(folder):
    mesh = MeshFixture(folder)
    mesh.close()
    return folder


def check(mesh):
    """What holds at every moment."""
    sends, there, received = mesh.sends(), mesh.accepted_there(), mesh.received()
    assert there.keys() <= sends.keys(), "the broker has what nobody sent"
    for key, (status, broker_id, _, _) in sends.items():
        if status == "done":
            assert there.get(key) == broker_id, "done, and the broker does not have it"
    texts = dict(received)
    assert len(texts) == len(received), "a message is in the inbox twice"
    assert texts.keys() <= there.keys()
    for key, text in texts.items():
        assert sends[key][2] in (text, None), "what arrived is another text"
    outstanding = mesh.outstanding()
    for key, broker_id in there.items():
        assert key in texts or broker_id in outstanding, "accepted, and nobody will get it"
    assert all(count == 1 for count in mesh.received_counts.values()), (
        "a message was received twice"
    )
    assert mesh.broker.orphans() == []


def check_end(mesh, retired=frozenset()):
    """What holds when nothing goes wrong any more and everything has come to its end."""
    mesh.settle()
    check(mesh)
    received = dict(mesh.received())
    for key, (status, _, _, ref) in mesh.sends().items():
        if key in retired and status == "aborted":
            continue  # it may have arrived before
        assert status == ("dead" if ref == NOWHERE[1:] else "done")
        assert (key in received) == (status == "done")
    assert mesh.outstanding() == set()
    assert mesh.outbox.sender.in_flight == 0


# -- one after another: every commit there is ------------------------------------------------


def story(mesh):
    """Sends, one by itself and two together; then rounds until all is quiet."""
    insist(mesh, lambda: mesh.outbox.send("one", key="a", to=DESTINATIONS[0]))
    pair = [
        wire.Send(DESTINATIONS[position], "two", client_message_id=f"b{position}")
        for position in (1, 2)
    ]
    insist(mesh, lambda: mesh.outbox.service.send_many(pair))
    for _ in range(3):
        mesh.pass_seconds(1)
        for step in (mesh.drain, mesh.receive, mesh.receive, mesh.receive, mesh.deliver):
            step()
            mesh.restart_dead()
            check(mesh)


def insist(mesh, ask):
    """A client that was not answered asks again, in the same words."""
    for _ in range(2):
        try:
            return ask()
        except (sqlite3.Error, Unavailable):
            mesh.restart_dead()
    return ask()


@pytest.fixture(scope="module")
def commits_of_the_story(made):
    """How many commits each store makes when nothing goes wrong."""
    with tempfile.TemporaryDirectory() as folder:
        mesh = MeshFixture(Path(folder), made)
        before = {store: mesh.points[store].commits for store in STORES}
        try:
            story(mesh)
            assert len(mesh.received()) == 3
            return {store: mesh.points[store].commits - before[store] for store in STORES}
        finally:
            mesh.close()


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("store", STORES)
def test_a_fault_before_or_after_any_commit_loses_and_doubles_nothing(
    made, commits_of_the_story, tmp_path, store, moment, dies
):
    commits = commits_of_the_story[store]
    assert commits >= 3
    for number in range(1, commits + 1):
        mesh = MeshFixture(tmp_path / str(number), made)
        try:
            mesh.points[store].arm(number, moment, dies=dies)
            story(mesh)
            assert mesh.points[store].fired, f"there was no {number}th commit"
            check_end(mesh)
            assert len(mesh.received()) == 3
        finally:
            mesh.close()


# -- at random -------------------------------------------------------------------------------


class MeshMachine(RuleBasedStateMachine):
    """`accepted`: texts and destinations of sends that got 202 or 200. `doubtful`: the same of
    sends without a reply, which may be stored. `retired`: sends that an operator removed."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.mesh = MeshFixture(self.folder)
        self.accepted, self.doubtful, self.retired = {}, {}, set()

    # -- clients and operators -------------------------------------------------------------

    @rule(key=KEYS, text=TEXTS, to=TO)
    def send(self, key, text, to):
        wanted = (text, to.partition(":")[2] or to[1:])
        try:
            self.mesh.outbox.send(text, key=key, to=to)
        except wire.IdReused as refused:
            if refused.extra["conflict"].endswith("_mismatch"):
                assert self.possible(key) - {wanted}, "the same send was taken for another"
            else:
                assert wanted in self.possible(key), "another send was taken for the same"
        except (sqlite3.Error, Unavailable):
            if key not in self.accepted:
                self.doubtful.setdefault(key, set()).add(wanted)
        else:
            assert self.accepted.setdefault(key, wanted) == wanted, "another send, a used id"

    def possible(self, key):
        known = self.accepted.get(key)
        return self.doubtful.get(key, set()) if known is None else {known}

    @rule(texts=st.lists(TEXTS, min_size=2, max_size=5), to=TO)
    def send_batch(self, texts, to):
        try:
            results = self.mesh.outbox.service.send_many([wire.Send(to, text) for text in texts])
        except (sqlite3.Error, Unavailable):
            return
        for text, (status, body) in zip(texts, results, strict=True):
            assert status == 202
            self.accepted[body.client_message_id] = (text, to.partition(":")[2] or to[1:])

    @rule(key=KEYS, patch=st.none() | TEXTS)
    def redrive(self, key, patch):
        change = None if patch is None else wire.Patch(message=patch)
        self.retire(key, lambda admin: admin.redrive(
            wire.Redrive(id=key, auto=True, patch=change)))  # fmt: skip

    @rule(key=KEYS)
    def drop(self, key):
        self.retire(key, lambda admin: admin.drop(wire.Drop(key)))

    def retire(self, key, act):
        try:
            act(self.mesh.outbox.admin)
        except (sqlite3.Error, Unavailable):
            pass  # done or not: nobody was answered
        except ApplianceError:
            return
        self.retired.add(key)

    # -- processes, lines, time ------------------------------------------------------------

    @rule(fault=st.just("") | st.sampled_from(LINES))
    def drain(self, fault):
        self.mesh.line.fault = fault
        self.mesh.drain()
        self.mesh.line.fault = ""

    @rule(fault=st.just("") | st.sampled_from(STEPS), noticed=st.booleans())
    def receive(self, fault, noticed):
        """`noticed`: the broker notices at once that the link was cut."""
        self.mesh.link_fault, self.mesh.noticed = fault, noticed
        self.mesh.receive()
        self.mesh.link_fault, self.mesh.noticed = "", True

    @rule(
        sends=st.lists(st.tuples(KEYS, TEXTS, TO), max_size=3),
        store=st.sampled_from(STORES),
        commits=st.integers(1, 5),
        moment=st.sampled_from(MOMENTS),
        dies=st.booleans(),
    )
    def go_through(self, sends, store, commits, moment, dies):
        """From client to inbox, with a fault at some commit on the way, or later."""
        self.mesh.points[store].arm(commits, moment, dies=dies)
        for send in sends:
            self.send(*send)
        for step in (self.mesh.drain, self.mesh.receive, self.mesh.receive, self.mesh.deliver):
            step()
            self.mesh.restart_dead()

    @rule(store=st.sampled_from(STORES))
    def restart(self, store):
        self.mesh.restart(store)

    @rule(seconds=st.sampled_from([0.1, 1, 31, 3600]))
    def time_passes(self, seconds):
        self.mesh.pass_seconds(seconds)

    # -- what always holds -----------------------------------------------------------------

    @invariant()
    def nothing_is_lost_doubled_or_freed(self):
        self.mesh.restart_dead()
        check(self.mesh)
        sends = self.mesh.sends()
        for key, (text, ref) in self.accepted.items():
            assert key in sends, "an accepted send is gone"
            assert sends[key][2] in (text, None)
            assert sends[key][3] == ref
        assert all(sends[key][0] != "aborted" or key in self.retired for key in self.accepted)

    def teardown(self):
        try:
            check_end(self.mesh, self.retired)
            self.nothing_is_lost_doubled_or_freed()
        finally:
            self.mesh.close()
            shutil.rmtree(self.folder)


TestMesh = MeshMachine.TestCase
TestMesh.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
