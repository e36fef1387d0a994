"""Makes an ask for each waiting worker bus review, and decides the review by its answer.

The ask's key names the review and its commit. So each round repeats all requests, and gets the
answers given meanwhile, without further state. A review that is decided in another way, or has a
new commit, cancels its ask.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from appliance.hub.ask import queries, wire
from appliance.hub.ask.service import Asks
from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop

APPROVE, CHANGES = "approve", "request changes"
BUS = Principal("appliance:bus", "appliance:bus", frozenset({ADMIN}))
POLL_SECONDS = 5.0
RETRY_SECONDS = 60.0  # after a refused decision, for example by the gate program
REVIEWS_MAX = 50

_shown = msgspec.json.Decoder(wire.AskShown).decode


class PendingReview(msgspec.Struct, frozen=True):
    """`head`: the commit under review."""

    number: int
    task: str
    head: str

    @property
    def key(self) -> str:
        return f"review-{self.number}-{self.head}"


class Reviews(Protocol):
    """The worker bus, passed in by `composition.py`."""

    def pending(self, limit: int) -> Sequence[PendingReview]: ...

    def decide(self, review: PendingReview, is_approved: bool, comment: str) -> str | None:
        """Return why the decision was refused, for example because the branch has moved since."""


class ReviewAsks(Loop):
    name = "ask_reviews"

    def __init__(self, asks: Asks, reviews: Reviews, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._asks = asks
        self._reviews = reviews
        asks.on_settled(self.nudge)

    def run_once(self, now_ms: int) -> dict[str, int]:
        self.interval_seconds = POLL_SECONDS
        decided = 0
        try:
            pending = self._reviews.pending(REVIEWS_MAX)
            for ask_id, key in self._asks.store.read(queries.waiting_keys, BUS.id, REVIEWS_MAX):
                if key not in {review.key for review in pending}:
                    self._asks.cancel(ask_id, wire.CancelAsk(), BUS)
            for review in pending:
                decided += self._follow(review)
        except (Unavailable, wire.AskSettled):  # a full disk, or an answer that was faster
            return {"decided": decided, "refused": 1}
        return {"decided": decided}

    def _follow(self, review: PendingReview) -> int:
        command = wire.CreateAsk(
            text=f"Review {review.task}: approve commit {review.head}?",
            sender=review.task,
            choices=[APPROVE, CHANGES],
            blocks=[review.task],
        )
        ask = _shown(self._asks.create(command, BUS, review.key).body).ask
        if ask.answer is None:
            return 0
        comment = f"{ask.answer}: {ask.answered_by}, {ask.id}"
        refusal = self._reviews.decide(review, ask.answer == APPROVE, comment)
        if refusal is not None:
            self.interval_seconds = RETRY_SECONDS
            self.log.warning("a review's answer was refused", ask=ask.id, reason=refusal)
        return int(refusal is None)
