"""Steps that need the appliance stopped: the plan says why, and the commands that apply them."""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor.actions import ACTIONS
from doctor.checks import leftovers
from tests.doctor import live
from tests.doctor.repairs import drop_search, in_sql, leave_server_file, open_token, repair
from tests.doctor.test_repair import lose_record, mark_suspect
from tests.doctor.workspace import WorkspaceFixture
from tests.support.commands import run
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceFixture:
    made = WorkspaceFixture(tmp_path)
    made.talk(5)
    made.index()
    return made


def move_message(workspace: WorkspaceFixture) -> None:
    in_sql(
        workspace,
        "INSERT INTO channels VALUES ('ch_2', 'other', NULL, '2026-01-01T00:00:00.000Z')",
        "UPDATE messages SET channel_id = 'ch_2' WHERE id = 'm000001'",
    )


def leave_pages(workspace: WorkspaceFixture) -> None:
    in_sql(
        workspace,
        "CREATE TABLE theirs (text BLOB)",
        "INSERT INTO theirs VALUES (zeroblob(1000000))",
        "DELETE FROM theirs",
    )


ROWS = [
    (lose_record, ["--run", "store.record"], "create or replace the file"),
    (mark_suspect, ["--run", "store.suspect"], "keeps pages that it read before"),
    (leave_pages, ["--run", "store.free-pages"], "all writes would wait"),
    (move_message, ["--run", "hub.channels", "--data"], "would not receive the change"),
    (drop_search, ["--run", "hub.search"], "can't be reached"),
    (drop_search, ["rebuild", "fts"], "can't be reached"),
]


@pytest.mark.parametrize(("breakage", "words", "reason"), ROWS)
def test_plan_and_result_say_why_and_what_to_run(
    workspace: WorkspaceFixture,
    breakage: Callable[[WorkspaceFixture], None],
    words: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leftovers, "FREE_BYTES_MIN", 1000)
    breakage(workspace)
    command = f"agentlipd down; agentlip doctor repair {' '.join(words)} --yes; agentlipd up"
    with workspace.running():
        shown = repair(workspace, *words)
        planned = plan_of(workspace, *words)
        done = repair(workspace, *words, "--yes")
    (stop,) = planned["needs_stop"]
    assert (stop["step"], stop["command"]) == (0, command)
    assert reason in stop["reason"]
    assert f"     Stop the appliance first: {stop['reason']}\n     -> {command}\n" in shown.stdout
    assert "[refused]" in done.stdout
    assert done.stdout.count(command) == 2  # in the plan, and in the result

    assert plan_of(workspace, *words)["needs_stop"] == []
    assert "[done]" in repair(workspace, *words, "--yes").stdout


def plan_of(workspace: WorkspaceFixture, *words: str) -> dict[str, Any]:
    report = json.loads(repair(workspace, *words, "--json", "--dry-run").stdout)
    return dict(report["plan"])


def test_step_that_is_harmless_needs_no_stop(workspace: WorkspaceFixture) -> None:
    open_token(workspace)
    leave_server_file(workspace)
    with workspace.running():
        planned = plan_of(workspace, "--run", "host.token")
    assert [step["action"] for step in planned["steps"]] == ["set-mode"]
    assert planned["needs_stop"] == []


def test_every_action_is_harmless_or_the_appliances_or_has_a_reason() -> None:
    for name, action in ACTIONS.items():
        chosen = (action.beside_owner, action.by_owner, bool(action.stopped))
        assert sum(chosen) == 1, name


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[ServedHub]:
    """An appliance that changes no store."""
    settings = "[doctor]\nowner_step_bytes_max = 1\n"
    hub = ServedHub(tmp_path / "workspace", "--no-limits", settings=settings)
    try:
        hub.start()
        hub.channel_with_topic("general")
        yield hub
    finally:
        run("agentlipd", "down", cwd=hub.workspace)
        hub.kill()


def test_commands_of_the_plan_repair(hub: ServedHub) -> None:
    live.in_hub("DROP INDEX idx_messages_topic")(hub)
    planned = run("agentlip", "doctor", "repair", "--json", cwd=hub.workspace).json
    (stop,) = planned["plan"]["needs_stop"]
    assert "more than `doctor.owner_step_bytes_max`" in stop["reason"]
    for each in stop["command"].split("; "):
        done = run(*shlex.split(each), cwd=hub.workspace)
        assert done.code == 0, done
    assert live.findings(hub) == []
