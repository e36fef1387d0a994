"""An inbox driven at random against a model of plain lists: nothing is lost, settled twice, or
settled unseen."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from appliance.hub.entries import wire
from tests.unit.hub.ask.conftest import new_file_in
from tests.unit.hub.entries.conftest import EntriesEnvironment

pytestmark = pytest.mark.slow
NAMES = ("ada", "bob", "cy")
HOUR = 3600
_new = None


def new_file():
    global _new
    if _new is None:
        _new = new_file_in(Path(tempfile.mkdtemp()))
    return _new


class Inboxes(RuleBasedStateMachine):
    """`model`: each entry's id → [name, state, message, due, wish, order]."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.env = EntriesEnvironment(Path(shutil.copy(new_file(), self.folder))).begin()
        self.model = {}
        self.orders = dict.fromkeys(NAMES, 0)
        self.hour = 0

    def teardown(self):
        self.env.store.close()
        shutil.rmtree(self.folder)

    def _add(self, entry_id, name, text, due=None, wish=None):
        self.orders[name] += 1
        self.model[entry_id] = {
            "name": name, "state": "stored", "text": text, "due": due, "wish": wish,
            "order": self.orders[name], "reminders": 0,
        }  # fmt: skip

    @rule(
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
        due=st.sampled_from([None, 1, 2]),
        wish=st.sampled_from([None, "remind", "reassign:cy"]),
    )
    def post(self, names, due, wish):
        more = {} if due is None else {"ack_by_seconds": due * HOUR, "on_overdue": wish}
        text = f"message {len(self.model)} {self.orders}"
        sent = self.env.send(text, to=names, **more)
        assert [receipt["name"] for receipt in sent["receipts"]] == names
        for receipt in sent["receipts"]:
            last = None if due is None else self.hour + due
            self._add(receipt["entry_id"], receipt["name"], text, last, wish if due else None)
            self.model[receipt["entry_id"]]["span"] = due

    @rule(name=st.sampled_from(NAMES), limit=st.integers(1, 4))
    def list_some(self, name, limit):
        page = self.env.list(name, limit=limit)
        for entry in page.entries:
            assert self.model[entry.id]["state"] in ("stored", "listed")
            self.model[entry.id]["state"] = "listed"

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def acknowledge(self, name, data):
        ids = [number for number, each in self.model.items() if each["name"] == name]
        if not ids:
            return
        chosen = data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True))
        states = {self.model[number]["state"] for number in chosen}
        if "declined" in states:
            with pytest.raises(wire.EntrySettled):
                self.env.ack(name, *chosen)
            return
        done = self.env.ack(name, *chosen)
        assert set(done["ids"]) | set(done["already"]) == set(chosen)
        for number in chosen:
            self.model[number]["state"] = "acknowledged"

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def acknowledge_range(self, name, data):
        ids = sorted(number for number, each in self.model.items() if each["name"] == name)
        if not ids:
            return
        first, last = sorted(data.draw(st.tuples(st.sampled_from(ids), st.sampled_from(ids))))
        inside = [number for number in ids if first <= number <= last]
        if any(self.model[number]["state"] == "stored" for number in inside):
            with pytest.raises(wire.NotListed):
                self.env.ack(name, first=first, last=last)
            return
        self.env.ack(name, first=first, last=last)
        for number in inside:
            if self.model[number]["state"] == "listed":
                self.model[number]["state"] = "acknowledged"

    @rule(data=st.data())
    def decline(self, data):
        waiting = [n for n, each in self.model.items() if each["state"] in ("stored", "listed")]
        if waiting:
            number = data.draw(st.sampled_from(waiting))
            self.env.decline(self.model[number]["name"], number)
            self.model[number]["state"] = "declined"

    @rule()
    def pass_an_hour(self):
        self.hour += 1
        self.env.clock.pass_seconds(HOUR)
        self.env.run_loop()
        events = self.env.rows(
            "SELECT json_extract(data_json, '$.new_entry_id') AS n, entity_id FROM events"
            " WHERE name = 'entry.overdue' ORDER BY event_id"
        )
        heirs = {int(old): new for new, old in events if new is not None}
        for number, each in sorted(self.model.items(), key=lambda item: item[1]["due"] or 0):
            waits = each["state"] in ("stored", "listed")
            if not waits or each["due"] is None or each["due"] > self.hour:
                continue
            each["due"] = None
            if each["wish"] == "remind" and each["reminders"] < 3:
                each["reminders"] += 1
                each["due"] = self.hour + each["span"]
                self.orders[each["name"]] += 1
                each["order"] = None
            elif each["wish"] == "reassign:cy" and each["name"] != "cy" and not any(
                other["name"] == "cy" and other["state"] == "declined"
                for other in self.model.values() if other["text"] == each["text"]
            ):  # fmt: skip
                each["state"] = "declined"
                if heirs[number] not in self.model:
                    self._add(heirs[number], "cy", each["text"], self.hour + each["span"])
                    self.model[heirs[number]]["span"] = each["span"]

    @rule()
    def restart(self):
        self.env.reopen()

    @invariant()
    def inboxes_are_as_in_the_model(self):
        stored = {
            number: (name, state)
            for number, name, state in self.env.rows("SELECT id, name, state FROM x_entries")
        }
        assert stored == {n: (each["name"], each["state"]) for n, each in self.model.items()}
        for name in NAMES:
            waiting = {
                number
                for number, each in self.model.items()
                if each["name"] == name and each["state"] in ("stored", "listed")
            }
            page = self.env.list(name, limit=200, peek=True)
            assert {entry.id for entry in page.entries} == waiting
            assert page.open == len(waiting)
            kept = [entry.id for entry in page.entries if self.model[entry.id]["order"]]
            assert kept == sorted(kept, key=lambda number: self.model[number]["order"])


Inboxes.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
test_inboxes_are_as_in_a_model = Inboxes.TestCase
