"""Hints can be run as they are printed, where the value is known."""

from appliance.busfile.workers import UnknownTask


def test_default_hint_names_the_values_in_the_details() -> None:
    for details, task in (({"task": "a b"}, "'a b'"), ({"task": None, "work": "a"}, "TASK")):
        filled = f"agentlip worker list; agentlip worker spawn {task} makes one"
        assert UnknownTask(details=details).hint == filled
