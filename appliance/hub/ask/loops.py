"""Settles asks when their deadline has passed, and hands their mails to the outbox."""

from typing import Protocol

from appliance.hub.ask import page, queries, writes
from appliance.hub.ask.queries import StoredAsk
from appliance.hub.ask.service import Asks
from appliance.hub.deadlines import DeadlineLoop
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Exhausted, Forbidden, Invalid, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop

IDLE_SECONDS = 30.0
RETRY_SECONDS = 1.0
SUBJECT_CHARACTERS_MAX = 200
MAILED_MAX = 20  # asks that are handed over in one round


class Deadlines(DeadlineLoop):
    """Settles asks. A new deadline wakes the loop."""

    name = "ask_deadlines"
    counted = "settled"
    handled_max = writes.SETTLED_MAX

    def __init__(self, asks: Asks, clock: Clock, log: Log) -> None:
        super().__init__(asks.hub, clock, log, work=asks.deadlines)
        self._asks = asks

    def next_due(self) -> int | None:
        due: int | None = self._asks.store.read(queries.next_due)
        return due

    def handle(self) -> int:
        return self._asks.settle_due()


class AskMail(Protocol):
    """The outbox, passed in by `composition.py`."""

    def send(self, key: str, address: str, subject: str, text: str) -> None:
        """Accept a mail durably, once per key. Raises the outbox's errors."""


class Mailer(Loop):
    """Woken by new asks. After a crash, mails are handed over again, with the same keys."""

    name = "ask_mailer"
    shortest_seconds = 0.05

    def __init__(self, asks: Asks, mail: AskMail, clock: Clock, log: Log) -> None:
        super().__init__(clock, log, work=asks.mails)
        self._asks = asks
        self._mail = mail
        self.nudge()

    def run_once(self, now_ms: int) -> dict[str, int]:
        asks = self._asks
        self.interval_seconds = IDLE_SECONDS
        waiting = asks.store.read(queries.find_unmailed, MAILED_MAX)
        try:
            for ask in waiting:
                self._hand_over(ask)
            if waiting:
                asks.store.write(writes.note_mailed, [ask.row.id for ask in waiting])
        except (Unavailable, Exhausted):  # the outbox or the disk is full
            self.interval_seconds = RETRY_SECONDS
            return {"mailed": 0, "refused": 1}
        if len(waiting) == MAILED_MAX:
            self.nudge()
        return {"mailed": len(waiting)}

    def _hand_over(self, ask: StoredAsk) -> None:
        shown = queries.to_wire(ask, self._asks.steady.ahead_ms())
        subject = " ".join(f"{ask.row.asker} asks".split())[:SUBJECT_CHARACTERS_MAX]
        for number, address in enumerate(ask.mail_to if ask.row.state == "waiting" else ()):
            url = f"{self._asks.settings.url.rstrip('/')}/ask/{self._asks.link(ask, number)}"
            text = page.mail_text(shown, url)
            try:
                self._mail.send(f"{ask.row.id}_{number}", address, subject, text)
            except (Invalid, Forbidden) as error:  # would be refused each time
                self.log.warning("a mail about an ask was refused", ask=ask.row.id, code=error.code)
