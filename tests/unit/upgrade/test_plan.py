"""What a migration would do, for stores in every state; nothing is written."""

import hashlib

import pytest

from appliance.kernel.config import BadSettings
from appliance.upgrade.plan import pending_stores, plan, stores_of
from appliance.upgrade.sections import UpgradeSections, read_sections
from appliance.workspace.migration import load, newest
from appliance.workspace.upgrade import MigrationEdited, SchemaTooNew
from tests.migrations.oldest import unpack_oldest
from tests.support.database_files import execute
from tests.support.other_versions import STEPS, install_steps
from tests.support.workspaces import Filled

STORES = UpgradeSections().roles.stores


def planned(datadir):
    return {store.store: store for store in plan(datadir, UpgradeSections()).stores}


@pytest.fixture
def current(tmp_path):
    return Filled(tmp_path).datadir


def test_steps_of_an_older_store_are_planned_and_nothing_is_written(tmp_path, monkeypatch):
    datadir = unpack_oldest(tmp_path / "ws")
    install_steps(monkeypatch, tmp_path / "migrations", STEPS)
    before = {
        path: hashlib.sha256(path.read_bytes()).digest() for path in datadir.dir.glob("*.sqlite3")
    }
    made = plan(datadir, UpgradeSections())
    hub = next(store for store in made.stores if store.store == "hub")
    assert (hub.status, hub.program) == ("pending", newest(load("hub")))
    assert len(hub.steps) == hub.program - hub.schema > 0
    assert made.steps == sum(store.program - store.schema for store in made.stores if store.steps)
    assert set(pending_stores(datadir, stores_of(datadir, UpgradeSections()))) == {
        each.store for each in made.stores if each.steps
    }
    assert {path: hashlib.sha256(path.read_bytes()).digest() for path in before} == before


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ("UPDATE meta SET value = '900' WHERE key = 'x_compat'", "too_new", SchemaTooNew),
        ("UPDATE x_migrations SET sha256 = 'other'", "edited", MigrationEdited),
    ],
)
def test_store_of_another_program_is_refused_before_any_other_is_migrated(
    current, change, status, error
):
    execute(current.database("inbox"), change)
    assert {store: made.status for store, made in planned(current).items() if made.problem} == {
        "inbox": status
    }
    with pytest.raises(error):
        pending_stores(current, STORES)


def test_missing_and_damaged_stores_are_refused_and_the_others_planned(current):
    assert {store.status for store in planned(current).values()} == {"current"}
    current.database("inbox").unlink()
    current.database("outbox").write_bytes(b"no database" * 1000)
    made = planned(current)
    assert (made["inbox"].status, made["outbox"].status) == ("missing", "damaged")
    assert (made["hub"].status, made["hub"].problem) == ("current", "")
    assert made["outbox"].hint
    assert pending_stores(current, STORES) == []


def test_error_in_another_section_prevents_no_plan(current, tmp_path):
    current.settings_file.write_text('[roles]\ninbox = false\n[http]\nport = "none"\n')
    assert "inbox" not in read_sections(current, None).roles.stores
    with pytest.raises(BadSettings, match="not found"):
        read_sections(current, tmp_path / "gone.toml")
