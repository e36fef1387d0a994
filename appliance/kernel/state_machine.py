"""A state machine as a table: which event leads from which state to which. Pure.

SQL and in-memory code apply a transition in their own way; the table says which ones exist, so
that queries, docs and model tests read the same rows.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

State = TypeVar("State")
Event = TypeVar("Event")


class IllegalTransition(ValueError):
    """The event doesn't exist in that state."""


class StateMachine(Generic[State, Event]):
    """`transitions`: (state, event) → next state. All other pairs are illegal."""

    def __init__(self, transitions: Mapping[tuple[State, Event], State]) -> None:
        self.transitions = dict(transitions)

    def after(self, state: State, event: Event) -> State:
        """Return the state after `event`; raise IllegalTransition."""
        try:
            return self.transitions[state, event]
        except KeyError:
            raise IllegalTransition(f"{event!r} is not possible in state {state!r}") from None

    def sources(self, event: Event) -> tuple[State, ...]:
        """Return the states in which `event` is possible, in table order."""
        return tuple(state for state, known in self.transitions if known == event)

    def events(self, state: State) -> tuple[Event, ...]:
        """Return the events that are possible in `state`; none means that the state is final."""
        return tuple(event for known, event in self.transitions if known == state)
