"""The plan of a migration: the state of each store."""

from pathlib import Path

from appliance.roles import RolesSettings
from appliance.upgrade.plan import plan
from appliance.upgrade.sections import UpgradeSections
from appliance.workspace.datadir import STORES, DataDir
from tests.migrations.test_former import FORMER, workspace_of
from tests.support.workspaces import Filled


def states(datadir: DataDir, **roles: bool) -> dict[str, str]:
    planned = plan(datadir, UpgradeSections(roles=RolesSettings(**roles)))
    return {store.store: store.status for store in planned.stores}


def test_new_workspace_has_nothing_to_migrate(tmp_path: Path) -> None:
    filled = Filled(tmp_path)
    assert states(filled.datadir) == dict.fromkeys(STORES, "current") | {"relay": "off"}
    planned = plan(filled.datadir, UpgradeSections())
    assert (planned.steps, planned.backup, planned.refused) == (0, False, [])


def test_older_stores_are_pending_with_a_backup(tmp_path: Path) -> None:
    planned = plan(workspace_of(FORMER[11], tmp_path / "w"), UpgradeSections())
    pending = [store for store in planned.stores if store.status == "pending"]
    assert planned.steps == sum(len(store.steps) for store in pending) > 0
    assert planned.backup


def test_damaged_store_is_refused_and_one_that_is_switched_off_is_not(tmp_path: Path) -> None:
    filled = Filled(tmp_path)
    filled.datadir.database("broker").write_bytes(b"x" * 10_000)
    assert states(filled.datadir)["broker"] == "damaged"
    assert states(filled.datadir, broker=False)["broker"] == "off"
