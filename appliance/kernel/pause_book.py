"""The pauses in effect. The hub's store has the rows; the copy in memory makes a request cost a
lookup."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from appliance.kernel.auth import ANSWER, OWNER, SERVER_TOKEN_ID, Principal
from appliance.kernel.pauses import Bounded, PauseKind, StoredPause, refusal_of

Call = Callable[[], object]
NAME_FIELDS = ("sender", "agent", "from_agent", "name")  # under which a request may act
WAIT_FIELDS = ("wait", "wait_s")
SHARED_IDS = frozenset({OWNER.id, SERVER_TOKEN_ID})
"""Credentials that people and agents in a workspace share."""


class PauseBook:
    """The pauses of principals and of all, and the names that agents use. Used on the event loop
    only.

    agents  names that agents have reported, or whose inboxes are in use
    """

    def __init__(
        self,
        steady_ms: Callable[[], int] = lambda: 0,
        wall_iso: Callable[[int | None], str | None] = lambda _: None,
        note_refusal: Callable[[PauseKind], object] = lambda _: None,
    ) -> None:
        self.agents: set[str] = set()
        self._steady_ms, self._wall_iso = steady_ms, wall_iso
        self._note_refusal = note_refusal
        self._pauses: dict[tuple[PauseKind, str], StoredPause] = {}
        self._watches: dict[int, Call] = {}
        self._last_watch = 0

    def replace(self, pauses: Iterable[StoredPause]) -> None:
        """Replace all pauses, and call the watchers if something changed."""
        former, self._pauses = self._pauses, {(row.kind, row.subject): row for row in pauses}
        if former != self._pauses:
            for call in list(self._watches.values()):
                call()

    def watch(self, call: Call) -> Callable[[], None]:
        """Call `call`, which must not wait, after each change. Return a function that ends it."""
        self._last_watch += 1
        number = self._last_watch
        self._watches[number] = call

        def stop() -> None:
            self._watches.pop(number, None)

        return stop

    def is_agent(self, principal: Principal, name: str) -> bool:
        """Return whether a caller that acts as `name` is an agent. A shared credential is one if
        an agent uses that name; people have a browser session, or a token that answers asks."""
        if principal.id in SHARED_IDS:
            return name in self.agents
        return not (principal.session or principal.allows(ANSWER))

    def find(self, principal: Principal, names: Iterable[str] = ()) -> StoredPause | None:
        """Return the pause that applies to a caller that acts as `names`."""
        if not self._pauses:
            return None
        own = principal.label or principal.name
        alone = principal.senders if principal.senders and len(principal.senders) == 1 else ()
        acting = (*names, *alone)
        for name in (own, *acting):
            pause = self._current("principal", name)
            if pause is not None:
                return pause
        if any(self.is_agent(principal, name) for name in acting or (own,)):
            return self._current("all", "")
        return None

    def check(self, principal: Principal, names: Iterable[str] = ()) -> None:
        """Raise Paused if a pause applies."""
        pause = self.find(principal, names)
        if pause is not None:
            self._note_refusal(pause.kind)
            raise refusal_of(pause, self._wall_iso(pause.until_steady_ms))

    def bind(
        self, bounded: Bounded | None, principal: Principal, request: Any
    ) -> "BoundCaller | None":
        """Return what may end a request while it waits; None if no pause refuses it. Raises
        Paused."""
        waits = any(getattr(request, field, 0) for field in WAIT_FIELDS)
        if bounded is None or (bounded == "wait" and not waits):
            return None
        named = (getattr(request, field, None) for field in NAME_FIELDS)
        bound = BoundCaller(self, principal, tuple(name for name in named if isinstance(name, str)))
        bound.check()
        return bound

    def _current(self, kind: PauseKind, subject: str) -> StoredPause | None:
        pause = self._pauses.get((kind, subject))
        return None if pause is None or pause.has_ended(self._steady_ms()) else pause


class BoundCaller(NamedTuple):
    """A caller that waits as long as no pause applies."""

    book: PauseBook
    principal: Principal
    names: tuple[str, ...]

    def check(self) -> None:
        self.book.check(self.principal, self.names)

    def watch(self, wake: Call) -> Callable[[], None]:
        """Call `wake` once a pause applies."""

        def call() -> None:
            if self.book.find(self.principal, self.names) is not None:
                wake()

        return self.book.watch(call)
