"""Asks a person before a job starts."""

import msgspec

from appliance.hub.access import POST, READ
from appliance.hub.ask import wire
from appliance.hub.ask.service import Asks
from appliance.jobs.loops import principal_of
from appliance.jobs.wire import AskBefore
from appliance.kernel.auth import Principal

PRINCIPAL = Principal("appliance:jobs", "appliance:jobs", frozenset({POST, READ}))


class HubJobAsks:
    def __init__(self, asks: Asks) -> None:
        self._asks = asks

    def ask(self, run_id: str, job: str, ask: AskBefore) -> str:
        command = wire.CreateAsk(
            ask.text, f"job {job}", list(ask.choices), ask.default, ask.deadline_seconds, [],
            [run_id],
        )  # fmt: skip
        who = msgspec.structs.replace(PRINCIPAL, name=principal_of(job))
        reply = self._asks.create(command, who, run_id)
        return msgspec.json.decode(reply.body, type=wire.AskShown).ask.id

    def answer(self, ask_id: str) -> str | None:
        ask = self._asks.show(ask_id, 0.0, PRINCIPAL).ask
        return None if ask.state == "waiting" else ask.answer or ""
