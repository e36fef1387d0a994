"""The events that a job can name are those that are written."""

import re

from appliance.courier import outcome_log
from appliance.jobs.spec import EVENTS
from appliance.outbox import log_writes
from tests.contract.test_walls import ROOT

NAME = re.compile(r"[a-z]+\.[a-z_]+")


def constants_of(module):
    return {
        text
        for text in vars(module).values()
        if isinstance(text, str) and NAME.fullmatch(text) and not text.startswith("appliance")
    }


def test_events_of_jobs_are_those_that_sources_write():
    text = (ROOT / "docs/reference/events.md").read_text("utf-8")
    assert set(EVENTS["hub"].split()) == set(re.findall(r"(?m)^## ([a-z_.]+)$", text))
    assert set(EVENTS["outbox"].split()) == constants_of(log_writes)
    assert set(EVENTS["courier"].split()) == constants_of(outcome_log) | {"envelope.accepted"}
