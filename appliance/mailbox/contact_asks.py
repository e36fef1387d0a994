"""Asks a person about requests for contact, and carries out the answer.

An agent has one question at a time, about its oldest request, however many wait. The question is
stored before the ask and deleted after the deed, so a killed appliance repeats both, and the
relay still lists a request only if the deed is not done.
"""

import hashlib
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from appliance.kernel.blank import printable
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.threads import in_thread
from appliance.sdk.network.agent import NetworkAgent
from appliance.sdk.network.contact_verbs import ACCEPT, BLOCK, DENY
from appliance.sdk.network.requests import EXPIRY_MS, ContactRequest

STORED = "contact_ask"  # the agent's cursor that holds the open question
ALL = " all"  # ends an answer that is about each listed request
CHOICES, CHOICES_FOR_ALL = (ACCEPT, DENY, BLOCK), (DENY + ALL, BLOCK + ALL)
NAMES_SHOWN_MAX = 20
SECONDS = 5.0  # between two looks at the answer
RETRY_SECONDS = 60.0  # after a relay or hub that refused


class ContactQuestion(Struct, frozen=True):
    """A stored question. `requests`: the one that it describes, and those that wait behind it."""

    agent: str
    text: str
    choices: tuple[str, ...]
    seconds: int
    requests: list[ContactRequest]

    @property
    def key(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class ContactAsks(Protocol):
    """The hub's asks, passed in by `composition.py`."""

    def follow(self, question: ContactQuestion) -> str | None:
        """Ask, once for each key, and return the answer; None while nobody has answered; "" if
        the question ended without an answer."""

    def withdraw(self, question: ContactQuestion) -> None: ...


class ContactAsker:
    def __init__(self, asks: ContactAsks, clock: Clock, log: Log) -> None:
        self._asks, self._clock, self._log = asks, clock, log
        self._next: dict[str, float] = {}

    def follow(self, agent: NetworkAgent) -> None:
        """Ask about the agent's oldest request, or act on the answer, every five seconds."""
        now = self._clock.monotonic()
        if now < self._next.get(agent.name, now):
            return
        self._next[agent.name] = now + SECONDS
        try:
            self._step(agent)
        except ApplianceError as error:
            self._next[agent.name] = now + RETRY_SECONDS
            self._log.warning("no question about a contact", agent=agent.name, code=error.code)

    def _step(self, agent: NetworkAgent) -> None:
        question = _read(agent)
        if question is None:
            requests = agent.requests.find_unasked(self._clock.now_ms())
            if not requests:
                return
            question = _make_question(agent, requests)
            agent.state.set_cursor(STORED, msgspec.json.encode(question).decode())
        answer = self._asks.follow(question)
        if answer is not None:
            _carry_out(agent, question, answer)
        elif question.requests[0] in agent.requests.waiting():
            return
        else:  # answered elsewhere, or withdrawn
            self._asks.withdraw(question)
        agent.state.set_cursor(STORED, "")


def _read(agent: NetworkAgent) -> ContactQuestion | None:
    stored = agent.state.cursor(STORED)
    return msgspec.json.decode(stored, type=ContactQuestion) if stored else None


def _carry_out(agent: NetworkAgent, question: ContactQuestion, answer: str) -> None:
    concerned = question.requests if answer.endswith(ALL) else question.requests[:1]
    if not answer:
        agent.requests.set_aside(concerned)
    else:
        agent.answer_requests(concerned, answer.removesuffix(ALL))


def _make_question(agent: NetworkAgent, requests: Sequence[ContactRequest]) -> ContactQuestion:
    first, others = requests[0], requests[1:]
    number = in_thread(agent.safety_number_with, first.public_key)
    lines = [
        f"May {first.agent} become a contact of {agent.name}?", "",
        f"Owner: {_line(first.email)}",
        f"Greeting: {_line(first.greeting)}",
        f"Safety number: {number}",
        "Owner and greeting are the requester's words. Compare the number with the owner.",
    ]  # fmt: skip
    if others:
        names = ", ".join(request.agent for request in others[:NAMES_SHOWN_MAX])
        more = ", …" if len(others) > NAMES_SHOWN_MAX else ""
        lines.append(f"{len(others)} more requests wait: {names}{more}")
    choices = (*CHOICES, *CHOICES_FOR_ALL) if others else CHOICES
    seconds = EXPIRY_MS // 1000
    return ContactQuestion(agent.name, "\n".join(lines), choices, seconds, list(requests))


def _line(text: str) -> str:
    """Return a stranger's text on one line, without control characters."""
    return " ".join(printable(text, " ").split()) or "-"
