"""Reviews of the worker bus, for asks. The command line decides them, as a person would."""

from collections.abc import Sequence

import msgspec

from appliance.ask.reviews import PendingReview, ReviewAsks
from appliance.ask.service import Asks
from appliance.bus.settings import BusSettings
from appliance.bus.subsystem import BusSubsystem
from appliance.host import Host
from appliance.kernel.reader import Reader
from appliance.kernel.store import Store
from appliance.kernel.store_errors import StoreAbsent
from appliance.kernel.subsystem import Subsystem
from appliance.workspace.command_runner import CommandRunner

DECIDE_SECONDS_MAX = 90.0  # the program of the gate has 60
_PENDING = (
    "SELECT r.id, r.task_id, r.head FROM x_reviews AS r JOIN workers AS w ON w.task_id = r.task_id"
    " WHERE r.decision = 'pending' AND r.head IS NOT NULL AND w.state = 'IN_REVIEW'"
    " ORDER BY r.id LIMIT ?"
)


class BusReviews:
    def __init__(self, store: Store, runner: CommandRunner) -> None:
        self._store = store
        self._runner = runner

    def pending(self, limit: int) -> Sequence[PendingReview]:
        try:
            rows: Sequence[PendingReview] = self._store.read(_pending, limit)
        except StoreAbsent:
            return ()
        return rows

    def decide(self, review: PendingReview, is_approved: bool, comment: str) -> str | None:
        verb = "approve" if is_approved else "request-changes"
        words = ["worker", verb, review.task, comment, "--head", review.head]
        done = self._runner.run(words, DECIDE_SECONDS_MAX)
        return None if done.code == 0 else done.errors.decode("utf-8", "replace")


def _pending(reader: Reader, limit: int) -> list[PendingReview]:
    return [PendingReview(*row) for row in reader.rows(_PENDING, (limit,), limit=limit)]


class AskBusNeeds(msgspec.Struct, frozen=True):
    asks: Asks
    bus: BusSubsystem


class AskBusSubsystem(Subsystem):
    """The loop as a subsystem, which is suspended while one of the two stores is damaged."""

    name = "ask_bus"
    needed_stores = frozenset({"hub", "bus"})

    def __init__(self, host: Host, needs: AskBusNeeds) -> None:
        runner = CommandRunner(host.datadir, "bus", host.section(BusSettings))
        reviews = BusReviews(needs.bus.stores[0], runner)
        self.loops = (ReviewAsks(needs.asks, reviews, host.clock, host.log),)
