"""Asks a person before a job starts."""

from appliance.hub.ask import wire
from appliance.hub.ask.own_asks import OwnAsks
from appliance.jobs.loops import principal_of
from appliance.jobs.wire import AskBefore


class HubJobAsks(OwnAsks):
    sender = "jobs"

    def ask(self, run_id: str, job: str, ask: AskBefore) -> str:
        command = wire.CreateAsk(
            ask.text, f"job {job}", list(ask.choices), ask.default, ask.deadline_seconds, [],
            [run_id],
        )  # fmt: skip
        return self._create(command, run_id, principal_of(job)).id
