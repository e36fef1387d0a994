"""A task's state, from the states of its entries."""

import pytest

from appliance.hub.a2a.states import CANCELED, TaskEntry, progress_of

QUESTION = ("ask_1", "Which branch?", "t9")


def entry(state, stored="t1", settled=None, because=None, overdue=None):
    listed = None if state == "stored" else stored
    return TaskEntry(1, state, stored, listed, settled, because, overdue)


DONE = entry("acknowledged", "t1", "t5")
CASES = [
    ([entry("stored")], "SUBMITTED"),
    ([entry("listed")], "WORKING"),
    ([DONE], "COMPLETED"),
    ([DONE, entry("stored", "t3")], "WORKING"),
    ([DONE, entry("acknowledged", "t3", "t8")], "COMPLETED"),
    ([entry("declined", settled="t5", because="no")], "REJECTED"),
    ([entry("declined", settled="t5", because=CANCELED)], "CANCELED"),
    ([DONE, entry("declined", "t3", "t6", CANCELED)], "CANCELED"),
    ([entry("listed", overdue="t4")], "FAILED"),
    ([entry("acknowledged", settled="t9", overdue="t4")], "FAILED"),
    ([entry("acknowledged", settled="t3", overdue="t4")], "COMPLETED"),
]


@pytest.mark.parametrize(("entries", "expected"), CASES)
def test_state_follows_from_the_entries(entries, expected):
    assert progress_of(entries, None).state == f"TASK_STATE_{expected}"


def test_message_after_the_end_does_not_open_the_task_again():
    progress = progress_of([DONE, entry("stored", "t6")], None)
    assert (progress.state, progress.since) == ("TASK_STATE_COMPLETED", "t5")


def test_question_pauses_an_open_task_and_not_an_ended_one():
    asked = progress_of([entry("listed")], QUESTION)
    assert (asked.state, asked.reason, asked.question) == (
        "TASK_STATE_INPUT_REQUIRED", "Which branch?", "ask_1"
    )  # fmt: skip
    assert progress_of([DONE], QUESTION).state == "TASK_STATE_COMPLETED"


def test_failure_is_dated_by_the_deadline_not_by_a_late_acknowledgement():
    progress = progress_of([entry("acknowledged", settled="t9", overdue="t4")], None)
    assert progress.since == "t4"
