"""The check store.objects: what differs from the migrations is found, legal schemas are not."""

from pathlib import Path

import pytest

from appliance.workspace.datadir import STORES
from doctor import run, schema_model
from tests.doctor.workspace import WorkspaceFixture

CHECK = "store.objects"


def objects(workspace: WorkspaceFixture, kind: str) -> list[tuple[str, str]]:
    """Store and name of each object of that kind that belongs to no full-text index."""
    rows = []
    for store in STORES:
        for (name,) in workspace.execute(
            "SELECT name FROM sqlite_schema WHERE type = ? AND sql IS NOT NULL"
            " AND name NOT LIKE 'sqlite!_%' ESCAPE '!'",
            kind,
            store=store,
        ):
            if "_fts" not in str(name) and "x_cjk" not in str(name):
                rows.append((store, str(name)))
    return rows


@pytest.mark.parametrize(("kind", "count"), [("index", 30), ("trigger", 3)])
def test_every_object_that_was_dropped_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, count: int
) -> None:
    monkeypatch.setattr(run, "FINDINGS_MAX", 1000)
    workspace = WorkspaceFixture(tmp_path)
    dropped = objects(workspace, kind)
    assert len(dropped) >= count
    for store, name in dropped:
        workspace.execute(f"DROP {kind} {name}", store=store)
    missing = {each.subject for each in workspace.find(CHECK) if each.problem == "missing"}
    assert {f"{store}.{name}" for store, name in dropped} <= missing


def test_statements_are_compared_by_their_meaning() -> None:
    normal = schema_model.normal
    assert normal("CREATE  TABLE a ( b TEXT, -- why\n c TEXT )") == normal(
        "create table A(b text,c /* x */ text);"
    )
    assert normal("SELECT 'A  b'") != normal("SELECT 'a b'")
    assert normal('CREATE TABLE "a" (b)') == normal("CREATE TABLE a (b)")
