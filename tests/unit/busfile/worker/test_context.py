"""The context file of a worktree, and task ids."""

import os

import pytest

from appliance.busfile.worker.context import (
    FILE_NAME,
    ContextRefused,
    InvalidTaskId,
    TaskContext,
    check_task_id,
    read_context,
    write_context,
)

CONTEXT = TaskContext("skills-abc", "/workspace", "feat/skills-abc")


@pytest.mark.parametrize(
    "task",
    ["", "-a", ".a", "a/b", "a b", "a\n", "../a", "a..b", "a.", "a.lock", "0" * 65, "ä", "a\0"],
)
def test_other_ids_are_refused(task):
    with pytest.raises(InvalidTaskId):
        check_task_id(task)


def test_context_is_read_from_a_folder_below(tmp_path):
    write_context(tmp_path, CONTEXT)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert read_context(below) == CONTEXT
    assert read_context(tmp_path.parent) is None


def test_context_is_never_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    write_context(tmp_path / "real", CONTEXT)
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "real" / FILE_NAME)
    with pytest.raises(ContextRefused, match="it is a link"):
        read_context(tmp_path)
    write_context(tmp_path, CONTEXT)
    assert not (tmp_path / FILE_NAME).is_symlink()
    assert read_context(tmp_path) == CONTEXT


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"task": "../x", "workspace": "", "branch": ""}']
)
def test_damaged_context_is_refused(tmp_path, text):
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ContextRefused):
        read_context(tmp_path)


def test_context_of_another_user_is_refused(tmp_path):
    """Else everybody who can write above the worktree would choose the bus."""
    write_context(tmp_path, TaskContext("t", str(tmp_path), "feat/t"))
    os.chown(tmp_path / FILE_NAME, 65_534, -1)
    with pytest.raises(ContextRefused, match="another user"):
        read_context(tmp_path)
