"""Gives asks the worker bus reviews. The command line decides a review, as it does for a person."""

from collections.abc import Sequence
from contextlib import suppress

from appliance.hub.ask.reviews import PendingReview
from appliance.kernel.reader import Reader
from appliance.kernel.store import Store
from appliance.kernel.store_errors import StoreAbsent
from appliance.workspace.command_runner import CommandRunner

DECIDE_SECONDS_MAX = 90.0  # the gate program has 60
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
        with suppress(StoreAbsent):
            return list(self._store.read(_pending, limit))
        return ()

    def decide(self, review: PendingReview, is_approved: bool, comment: str) -> str | None:
        verb = "approve" if is_approved else "request-changes"
        words = ["worker", verb, review.task, comment, "--head", review.head]
        done = self._runner.run(words, DECIDE_SECONDS_MAX)
        return None if done.code == 0 else done.errors.decode("utf-8", "replace")


def _pending(reader: Reader, limit: int) -> list[PendingReview]:
    return [PendingReview(*row) for row in reader.rows(_PENDING, (limit,), limit=limit)]
