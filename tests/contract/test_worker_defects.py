"""Defects that worker buses before this one had, and the test that fails if one returns."""

import pytest

from tests.contract.test_walls import ROOT

FOLDERS = ("tests/unit/busfile", "tests/unit/busfile/worker", "tests/cli")
DEFECTS = {
    # Commands
    "the default base branch is absent":
        "test_git: test_integration_branch_falls_back_to_the_one_that_exists",
    "every spawn fetches": "test_commands: test_failed_spawn_names_its_step_and_leaves_nothing",
    "a spawn that fails leaves a branch or a worktree without a row":
        "test_commands: test_failed_spawn_names_its_step_and_leaves_nothing",
    "a killed spawn leaves them": "test_operations: test_killed_command_is_finished_or_undone",
    "positional arguments are refused": "test_worker: test_task_from_spawn_to_merge",
    "the heartbeat begins after WORKING, so that a new worker is late":
        "test_commands: test_start_sends_the_heartbeat_before_the_change",
    "the context file is a symbolic link": "test_context: test_context_is_never_a_link",
    "a conflict is missed because of its words":
        "test_git: test_conflicting_rebase_stays_in_progress_with_its_files",
    "a program that returns at once keeps no heartbeat":
        "test_run: test_heartbeat_is_there_before_the_command_starts",
    "an agent of one call has no heartbeat": "test_worker: test_task_from_spawn_to_merge",
    # Specification
    "a full disk reads as a claim of somebody else":
        "test_file_faults: test_full_disk_is_an_error_in_each_write_and_nothing_is_torn",
    "a change of the status waits for the next heartbeat":
        "test_heartbeats: test_thread_writes_first_then_every_change_at_once_and_stops_at_once",
    "the age of a heartbeat is negative": "test_heartbeats: test_age_is_never_negative",
    "a killed export writes lines twice":
        "test_file_faults: test_export_killed_at_each_step_neither_repeats_nor_loses_a_line",
}  # fmt: skip


@pytest.mark.parametrize(("defect", "name"), DEFECTS.items())
def test_each_defect_has_its_test(defect, name):
    module, test = name.split(": ")
    (path,) = [path for path in (ROOT / folder / f"{module}.py" for folder in FOLDERS)
               if path.exists()]  # fmt: skip
    assert f"\ndef {test}(" in path.read_text("utf-8"), defect
