"""Wakes an agent for more than its inbox: courier envelopes, and messages on the worker bus.

A turn that exits with 0 acks its envelope or its messages. After another exit code, the courier
delivers the envelope again, as its stream's policy says; bus messages are handed over again, later
each time.
"""

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from appliance.hub.agents.running import WAIT_SECONDS
from appliance.hub.agents.turn import TurnResult
from appliance.hub.agents.turn_runner import FAILURES_MAX, TurnRunner
from appliance.hub.agents.wire import ENTRIES_MAX
from appliance.hub.agents.work import Work
from appliance.kernel.errors import ApplianceError
from appliance.sdk.courier import Consumer, Delivery
from appliance.sdk.discovery import Endpoint
from appliance.sdk.errors import Paused

MESSAGES, ACKS = "/bus/v1/messages", "/bus/v1/acks"
END_SECONDS = 5.0  # for a source to release its work, after its turn has ended
ERROR_CHARACTERS = 500  # kept with an envelope, from the end of the output

Hub = Any


class Source(ABC):
    """A thread that brings work to an agent's turns. `interrupt`: called after an error that ends
    it, which is then in `error`."""

    def __init__(self, runner: TurnRunner, interrupt: Callable[[], None]) -> None:
        self.runner, self._interrupt = runner, interrupt
        self.error: ApplianceError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Release leased work. The turn has ended before."""
        self._thread.join(END_SECONDS)

    @abstractmethod
    def serve(self) -> None:
        """Bring work until the runner's `stop` is set."""

    def _run(self) -> None:
        try:
            self.serve()
        except ApplianceError as error:
            self.error = error
            self.runner.stop.set()
            self._interrupt()


class EnvelopeSource(Source):
    """Leases one envelope at a time from a stream, or from a pattern's streams."""

    def __init__(
        self, runner: TurnRunner, interrupt: Callable[[], None], locate: Callable[[], Endpoint],
        stream: str,
    ) -> None:  # fmt: skip
        super().__init__(runner, interrupt)
        self._stream = stream
        self._consumer = Consumer(locate, stream, credit=1, name=runner.name, say=runner.say)

    def serve(self) -> None:
        for delivery in self._consumer:
            if self.runner.stop.is_set():
                delivery.nack("release")
                break
            self._handle(delivery)
        self._consumer.close()

    def end(self) -> None:
        self._consumer.stop()
        super().end()

    def _handle(self, delivery: Delivery) -> None:
        if not self.runner.may_begin():
            delivery.nack("release")  # for another consumer, while this agent may not work
            return
        row = {
            "stream": self._stream, "attempt": delivery.attempt, "envelope": delivery.envelope,
        }  # fmt: skip
        outcome, result = self.runner.run(Work(envelopes=[row]))
        if outcome == "done":
            delivery.ack()
        elif outcome == "stopped":
            delivery.nack("release")
        else:
            delivery.nack(error=_error(result))


class BusSource(Source):
    """Waits for messages to the agent. Messages to all wake nobody, and are in the next turn."""

    def __init__(self, runner: TurnRunner, interrupt: Callable[[], None], hub: Hub) -> None:
        super().__init__(runner, interrupt)
        self._hub = hub
        self._seen: int | None = None  # the number of the last message that was looked at

    def serve(self) -> None:
        while not self.runner.stop.is_set():
            if self._await_message():
                self._handle()

    def _await_message(self) -> bool:
        """Wait for more messages. Return whether one of them is to the agent."""
        try:
            rows = self._poll(after=self._seen, wait=random.uniform(*WAIT_SECONDS))
        except Paused:
            self.runner.may_begin()
            return False
        if rows:
            self._seen = rows[-1]["seq"]
        return any(row["to_agent"] == self.runner.name for row in rows)

    def _handle(self) -> None:
        """Hand over what waits, until a turn has acked all."""
        failures = 0
        while not self.runner.stop.is_set() and (rows := self._poll()):
            if not self.runner.may_begin():
                continue
            outcome, _ = self.runner.run(Work(messages=rows))
            if outcome == "done":
                body = {"agent": self.runner.name, "seq": rows[-1]["seq"]}
                self._hub.post(ACKS, body, None)
                failures = 0
            elif outcome != "stopped":
                failures += 1
                if failures == FAILURES_MAX:
                    self.runner.say(f"{failures} turns failed for bus messages; they still wait")
                self.runner.rest(failures)

    def _poll(self, **query: Any) -> list[dict[str, Any]]:
        page = self._hub.get(MESSAGES, agent=self.runner.name, limit=ENTRIES_MAX, **query)
        return list(page["messages"])


def _error(result: TurnResult) -> str:
    return f"{result.outcome} ({result.code}): {result.output[-ERROR_CHARACTERS:]}".strip()
