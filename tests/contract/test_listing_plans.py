"""How SQLite runs the composed listings: by index, and never by reading a whole table."""

import functools
import importlib
import io
import itertools
import re
import sqlite3
from contextlib import closing

import pytest

from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.workspace.schema import STORES, migrate
from tests.contract.test_walls import ROOT

CACHED = type(functools.cache(len))
STORE = {"hooks": "inbox", "ask": "hub"}  # subsystems without a store of their own
# Of everything: a row for each plugin or channel, and meshes along their indexes.
SMALL = {"_CURSORS", "_MESHES", "_channels(False, False)"}
# For each form of a statement composed on demand: the values of its arguments.
FLAGS = [False, True]
STATES = [None, "pending", "inflight", "done", "dead", "aborted"]
FILTERS = [(), ("mesh",), ("destination_kind", "destination_ref"), ("mesh", "destination_kind",
           "destination_ref")]  # fmt: skip
BOUNDS = [(), ("after",), ("before",), ("after", "before"), ("kept", "error_contains")]
TOPICS = [("channel",), ("at", "channel")]  # the slow readers sort all channels' topics
ASKS = [(), ("state",), ("name",), ("asker", "only"), ("name", "state")]
FORMS = {
    "appliance.hub.listings": {
        "_channels": [FLAGS, FLAGS], "_topics": [TOPICS], "_attachments": [FLAGS, FLAGS],
    },
    "appliance.hub.ask.listings": {"_asks": [ASKS]},
    "appliance.broker.listings": {"_history": [FLAGS]},
    "appliance.outbox.listings": {"_statement": [STATES, FILTERS, BOUNDS, FLAGS]},
}  # fmt: skip


def modules():
    for file in sorted((ROOT / "appliance").rglob("listings.py")):
        yield ".".join(file.relative_to(ROOT).with_suffix("").parts)


def statements():
    assert modules()
    for name in modules():
        module, package = importlib.import_module(name), name.split(".")[1]
        store = STORE.get(package, package)
        for key, value in vars(module).items():
            if isinstance(value, str) and value.startswith("SELECT"):
                yield pytest.param(store, key, value, id=f"{name}:{key}")
        for function, choices in FORMS.get(name, {}).items():
            for args in itertools.product(*choices):
                form = f"{function}{args}"
                yield pytest.param(
                    store, form, getattr(module, function)(*args), id=f"{name}:{form}"
                )


@pytest.fixture(scope="module")
def connections(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    made = {}
    for store in STORES:
        log = Log(io.BytesIO())
        migrate(folder / store, store, clock=SystemClock(), log=log)
        made[store] = sqlite3.connect(folder / store)
    yield made
    for connection in made.values():
        connection.close()


def scans(connection, sql):
    values = dict.fromkeys(re.findall(r":(\w+)", sql), 1)
    with closing(connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)) as steps:
        plan = [step[3] for step in steps]
    return [step for step in plan if step.startswith("SCAN") and "json_each" not in step]


@pytest.mark.parametrize(("store", "form", "sql"), list(statements()))
def test_no_listing_reads_a_table_from_its_start(connections, store, form, sql):
    # A list of all sends, or of one state: along an index, for as long as the page has room.
    ordered = form.startswith("_statement") and "LIMIT" in sql
    results = scans(connections[store], sql)
    indexed = all(ordered and "USING INDEX" in step for step in results)
    assert indexed or form in SMALL, results


def test_every_function_that_composes_is_looked_at():
    composing = {
        name: {
            key
            for key, value in vars(importlib.import_module(name)).items()
            if isinstance(value, CACHED)
        }
        for name in modules()
    }
    assert composing == {name: set(FORMS.get(name, {})) for name in modules()}
